// Package vectors reads the test vectors of sdks/vectors, and has what their players share.
package vectors

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Vector is one test.
type Vector struct {
	File    string
	Name    string            `json:"name"`
	Rules   []string          `json:"rules"`
	Options Options           `json:"options"`
	Tokens  []Token           `json:"tokens"`
	Random  []float64         `json:"random"`
	Steps   []map[string]Step `json:"steps"`
}

// Step is the argument of a step.
type Step = json.RawMessage

// Options configure the client.
type Options struct {
	App          string   `json:"app"`
	Acknowledge  string   `json:"acknowledge"`
	Listener     string   `json:"listener"`
	PingInterval int      `json:"ping_interval_s"`
	Transports   []string `json:"transports"`
	WebSocket    *bool    `json:"websocket"`
}

// Names are the transports of the client.
func (o Options) Names() []string {
	names := o.Transports
	if names == nil {
		names = []string{"websocket", "sse"}
	}
	if o.WebSocket != nil && !*o.WebSocket {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "websocket" })
	}
	return names
}

// Token is the answer to a request for a token.
type Token struct {
	Name       string `json:"name"`
	LifetimeS  int64  `json:"lifetime_s"`
	Iat        *bool  `json:"iat"`
	ClockAhead int64  `json:"clock_ahead_s"`
	Fail       bool   `json:"fail"`
	None       bool   `json:"none"`
	Pending    bool   `json:"pending"`
}

// Text is the token.
func (t Token) Text(now time.Time) string {
	if t.LifetimeS == 0 {
		return t.Name
	}
	iat := now.Unix() + t.ClockAhead
	claims := map[string]any{"jti": t.Name, "exp": iat + t.LifetimeS}
	if t.Iat == nil || *t.Iat {
		claims["iat"] = iat
	}
	return encode(map[string]any{"alg": "none"}) + "." + encode(claims) + ".x"
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// TokenName is the name of a token.
func TokenName(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return token
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Name string `json:"jti"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return token
	}
	return claims.Name
}

// Start is the time at which every vector begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Folder finds sdks/vectors above the working folder.
func Folder() (string, error) {
	folder, err := os.Getwd()
	for ; err == nil; folder = filepath.Dir(folder) {
		found := filepath.Join(folder, "vectors", "schema.json")
		if _, err := os.Stat(found); err == nil {
			return filepath.Dir(found), nil
		}
		if filepath.Dir(folder) == folder {
			return "", errors.New("there is no folder sdks/vectors: run the tests in a clone of the repository")
		}
	}
	return "", err
}

// Load reads all vectors: of the folder, and of next, which has those that the libraries of other languages may not pass yet.
func Load() ([]Vector, error) {
	folder, err := Folder()
	if err != nil {
		return nil, err
	}
	return load(folder)
}

func load(folder string) ([]Vector, error) {
	var files []string
	for _, pattern := range []string{"*.json", filepath.Join("next", "*.json")} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var all []Vector
	for _, file := range files {
		name := strings.TrimPrefix(filepath.ToSlash(file), filepath.ToSlash(folder)+"/")
		if name == "schema.json" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var content struct {
			Vectors []Vector `json:"vectors"`
		}
		if err := json.Unmarshal(text, &content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, vector := range content.Vectors {
			vector.File = name
			if vector.Tokens == nil {
				vector.Tokens = []Token{{Name: "t1"}}
			}
			all = append(all, vector)
		}
	}
	return all, nil
}

// Expectation is the argument of the step expect.
type Expectation struct {
	Wire  []map[string]any `json:"wire"`
	Local []map[string]any `json:"local"`
}

// Diff describes how observations differ from what a vector expects, or returns "".
func Diff(expected, observed []map[string]any) string {
	want, got := normal(expected), normal(observed)
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return fmt.Sprintf("expected %s\nobserved %s", brief(want), brief(got))
}

// ByKind brings observations of sockets into a common order: each kind keeps its own.
func ByKind(observed []map[string]any) []map[string]any {
	kind := func(one map[string]any) int {
		for n, name := range []string{"open", "frame", "close", "request"} {
			if _, ok := one[name]; ok {
				return n
			}
		}
		return -1
	}
	sorted := slices.Clone(observed)
	slices.SortStableFunc(sorted, func(a, b map[string]any) int { return kind(a) - kind(b) })
	return sorted
}

func normal(values []map[string]any) []any {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	var all []any
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func brief(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	if len(text) > 2_000 {
		return string(text[:2_000]) + " …"
	}
	return string(text)
}
