package noroshi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"
)

func parts(t *testing.T, token string) (header, claims map[string]any, signed string, signature []byte) {
	t.Helper()
	fields := strings.Split(token, ".")
	if len(fields) != 3 {
		t.Fatalf("%q", token)
	}
	for n, value := range []*map[string]any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(fields[n])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, value); err != nil {
			t.Fatal(err)
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	return header, claims, fields[0] + "." + fields[1], signature
}

var claims = DeviceClaims{User: "u1", Device: "d1", Lifetime: time.Hour, IssuedAt: time.Unix(1_767_225_600, 0)}

func TestHS256(t *testing.T) {
	signer, err := NewSigner([]byte("a-secret-of-at-least-thirty-two-bytes"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	// By another implementation: Python's hmac and base64.
	want := "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJkZXZpY2UiOiJkMSIsImV4cCI6MTc2NzIyOTIwMCwiaWF0IjoxNzY3MjI1NjAwLCJzdWIiOiJ1MSJ9.2atg8fGwqbrJ34-L0btDOirNAZQ5zIGMuTk2Fk-nljo"
	if token != want {
		t.Errorf("%s", token)
	}
}

func TestAllClaims(t *testing.T) {
	signer, err := NewSigner(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	all := claims
	all.Topics, all.Issuer, all.Audience, all.NotBefore = []string{"news"}, "i", "a", time.Unix(5, 0)
	all.Extra = map[string]any{"team": "red", "sub": "another user"}
	token, err := signer.Sign(all)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _, _ := parts(t, token)
	text, _ := json.Marshal(got)
	want := `{"aud":"a","device":"d1","exp":1767229200,"iat":1767225600,"iss":"i","nbf":5,"sub":"u1","team":"red","topics":["news"]}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
}

func TestRS256AndES256(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for algorithm, key := range map[string]crypto.Signer{"RS256": private, "ES256": curve} {
		signer, err := NewKeySigner(key, "k1")
		if err != nil {
			t.Fatal(err)
		}
		for range 50 { // numbers with leading zeros
			token, err := signer.Sign(claims)
			if err != nil {
				t.Fatal(err)
			}
			header, _, signed, signature := parts(t, token)
			if header["alg"] != algorithm || header["kid"] != "k1" {
				t.Errorf("%v", header)
			}
			digest := sha256.Sum256([]byte(signed))
			if algorithm == "RS256" {
				if err := rsa.VerifyPKCS1v15(&private.PublicKey, crypto.SHA256, digest[:], signature); err != nil {
					t.Error(err)
				}
				break
			}
			if len(signature) != 64 || !ecdsa.Verify(&curve.PublicKey, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
				t.Errorf("%x", signature)
			}
		}
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewKeySigner(large, ""); err == nil {
		t.Error("P-384 was accepted")
	}
}

func TestClaimsAreChecked(t *testing.T) {
	if _, err := NewSigner(make([]byte, 31)); err == nil {
		t.Error("a short secret was accepted")
	}
	signer, err := NewSigner(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []DeviceClaims{
		{Device: "d", Lifetime: time.Hour}, {User: "u", Lifetime: time.Hour}, {User: "u", Device: "d"}, {User: "u", Device: "d", Lifetime: -time.Hour},
		{User: strings.Repeat("u", 256), Device: "d", Lifetime: time.Hour}, {User: "u", Device: "d", Lifetime: time.Hour, Extra: map[string]any{"x": make(chan int)}},
	} {
		if token, err := signer.Sign(wrong); err == nil {
			t.Errorf("%+v: %s", wrong, token)
		}
	}
}
