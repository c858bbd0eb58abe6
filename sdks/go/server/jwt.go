package noroshi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"time"
)

// DeviceClaims are the claims of an app JWT, with which a device logs in (docs/authorization.md). User, Device and Lifetime are required.
type DeviceClaims struct {
	// User is the user, 1 to 255 bytes.
	User string
	// Device is the id of the device, 1 to 128 bytes. Its first log-in creates it.
	Device string
	// Lifetime is the time until the JWT expires, at least a second.
	Lifetime time.Duration
	// Topics are durable subscriptions.
	Topics []string
	// Issuer and Audience are required if the app declares them.
	Issuer   string
	Audience string
	// IssuedAt is the time of issue. Default: now.
	IssuedAt time.Time
	// NotBefore is the time from which on the JWT is valid.
	NotBefore time.Time
	// Extra are further claims, which topic rules may name.
	Extra map[string]any
}

// Signer creates app JWTs on this machine, without a request. It is safe for concurrent use.
type Signer struct {
	algorithm, keyID string
	sign             func(digested string) ([]byte, error)
}

// NewSigner returns a signer with the secret of the app (HS256), 32 to 1,024 bytes.
func NewSigner(secret []byte) (*Signer, error) {
	if len(secret) < 32 || len(secret) > 1024 {
		return nil, errors.New("noroshi: the secret of an app has 32 to 1024 bytes")
	}
	key := append([]byte{}, secret...)
	return &Signer{algorithm: "HS256", sign: func(text string) ([]byte, error) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil), nil
	}}, nil
}

// NewKeySigner returns a signer with a private key whose public key is among the app's: RSA (RS256) or ECDSA with P-256 (ES256). keyID
// is the kid of the public key, or "".
func NewKeySigner(key crypto.Signer, keyID string) (*Signer, error) {
	digest := func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		return sum[:]
	}
	switch public := key.Public().(type) {
	case *rsa.PublicKey:
		return &Signer{"RS256", keyID, func(text string) ([]byte, error) {
			return key.Sign(rand.Reader, digest(text), crypto.SHA256)
		}}, nil
	case *ecdsa.PublicKey:
		if public.Curve != elliptic.P256() {
			return nil, fmt.Errorf("noroshi: the curve of the key is %s, not P-256", public.Curve.Params().Name)
		}
		return &Signer{"ES256", keyID, func(text string) ([]byte, error) {
			der, err := key.Sign(rand.Reader, digest(text), crypto.SHA256)
			if err != nil {
				return nil, err
			}
			// RFC 7518 §3.4: r and s as 64 bytes, not DER.
			var point struct{ R, S *big.Int }
			if _, err := asn1.Unmarshal(der, &point); err != nil {
				return nil, err
			}
			signature := make([]byte, 64)
			point.R.FillBytes(signature[:32])
			point.S.FillBytes(signature[32:])
			return signature, nil
		}}, nil
	}
	return nil, fmt.Errorf("noroshi: a key of the type %T cannot sign app JWTs", key.Public())
}

// Sign returns a JWT. Its claim iat is always set, because revocation needs it.
func (s *Signer) Sign(claims DeviceClaims) (string, error) {
	switch {
	case claims.User == "" || len(claims.User) > 255:
		return "", errors.New("noroshi: DeviceClaims.User has 1 to 255 bytes")
	case claims.Device == "" || len(claims.Device) > 128:
		return "", errors.New("noroshi: DeviceClaims.Device has 1 to 128 bytes")
	case claims.Lifetime < time.Second:
		return "", errors.New("noroshi: DeviceClaims.Lifetime is at least a second")
	}
	issued := claims.IssuedAt
	if issued.IsZero() {
		issued = time.Now()
	}
	body := maps.Clone(claims.Extra)
	if body == nil {
		body = map[string]any{}
	}
	body["sub"], body["device"] = claims.User, claims.Device
	body["iat"], body["exp"] = issued.Unix(), issued.Add(claims.Lifetime).Unix()
	if len(claims.Topics) > 0 {
		body["topics"] = claims.Topics
	}
	if claims.Issuer != "" {
		body["iss"] = claims.Issuer
	}
	if claims.Audience != "" {
		body["aud"] = claims.Audience
	}
	if !claims.NotBefore.IsZero() {
		body["nbf"] = claims.NotBefore.Unix()
	}
	header := map[string]string{"alg": s.algorithm, "typ": "JWT"}
	if s.keyID != "" {
		header["kid"] = s.keyID
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("noroshi: DeviceClaims.Extra: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(payload)
	signature, err := s.sign(text)
	if err != nil {
		return "", fmt.Errorf("noroshi: cannot sign: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
