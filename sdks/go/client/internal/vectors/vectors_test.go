package vectors

import (
	"os"
	"path/filepath"
	"testing"
)

// The folder next holds what not every language passes: it may be full, empty or missing.
func TestLoadReadsNextIfThereIsOne(t *testing.T) {
	folder := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(`{"vectors": [{"name": "one", "steps": []}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		all, err := load(folder)
		if err != nil || len(all) != len(want) {
			t.Fatalf("%v %v", all, err)
		}
		for n, vector := range all {
			if vector.File != want[n] {
				t.Errorf("%s, not %s", vector.File, want[n])
			}
		}
	}
	write("items.json")
	write("schema.json")
	expect("items.json")
	if err := os.Mkdir(filepath.Join(folder, "next"), 0o700); err != nil {
		t.Fatal(err)
	}
	expect("items.json")
	write(filepath.Join("next", "items.json"))
	expect("items.json", "next/items.json")
}
