package client

import "encoding/json"

// Optional is a field of a change that is absent, null or has a value. The zero value is absent: the service keeps the field.
type Optional[T any] struct {
	value  T
	isSet  bool
	isNull bool
}

// Set returns a field with a value.
func Set[T any](value T) Optional[T] { return Optional[T]{value: value, isSet: true} }

// Null returns a field that is null: the service clears it.
func Null[T any]() Optional[T] { return Optional[T]{isSet: true, isNull: true} }

// IsZero reports whether the field is absent.
func (o Optional[T]) IsZero() bool { return !o.isSet }

// Value returns the value, if there is one.
func (o Optional[T]) Value() (T, bool) { return o.value, o.isSet && !o.isNull }

// MarshalJSON implements [json.Marshaler].
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.isSet || o.isNull {
		return []byte("null"), nil
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{isSet: true, isNull: string(data) == "null"}
	if o.isNull {
		return nil
	}
	return json.Unmarshal(data, &o.value)
}
