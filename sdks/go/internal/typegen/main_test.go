package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Every rule of the package's comment, in one document.
func TestGolden(t *testing.T) {
	out := filepath.Join(t.TempDir(), "types.go")
	if err := run("apiKey", "things", nil, []string{"Problem"}, true, "Code", out, "testdata/openapi.json"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/types.golden"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s", got)
	}
}

func TestProblemsAreReported(t *testing.T) {
	out := filepath.Join(t.TempDir(), "types.go")
	for _, err := range []error{
		run("", "things", nil, nil, false, "", out, "testdata/openapi.json"),
		run("apiKey", "things", nil, nil, false, "", out, "testdata/missing.json"),
		run("apiKey", "things", nil, nil, false, "", out, "testdata/types.golden"),
		run("apiKey", "things", []string{"Missing"}, nil, false, "", out, "testdata/openapi.json"),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
}
