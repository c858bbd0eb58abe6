// Package readme tests the programs of README.md, and that everything exported has a comment.
package readme

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/noroshi/noroshi/sdks/go/internal/testnode"
)

// programs builds the programs of README.md, with the address and the key of the node, and returns their paths.
func programs(t *testing.T, node *testnode.Node) (paths []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for n, match := range regexp.MustCompile("(?s)```go\n( *package main\n.*?)```").FindAllSubmatch(text, -1) {
		source := regexp.MustCompile("(?m)^   ").ReplaceAllString(string(match[1]), "")
		source = strings.NewReplacer("http://127.0.0.1:8080", node.URL, "my-development-key", testnode.Key).Replace(source)
		path := filepath.Join(folder, string(rune('a'+n)))
		if err := os.WriteFile(path+".go", []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.Command("go", "build", "-o", path, path+".go").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		if output, err := exec.Command("gofmt", "-l", path+".go").CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("not formatted: %s %v", output, err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestTheProgramsOfTheReadme(t *testing.T) {
	if os.Getenv("NOROSHI_BIN") == "" {
		t.Skip("NOROSHI_BIN does not name a node")
	}
	node, err := testnode.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Stop()
	paths := programs(t, node)
	if len(paths) != 2 {
		t.Fatalf("the README has %d programs", len(paths))
	}
	listen := func() (next func() string, stop func()) {
		t.Helper()
		command := exec.Command(paths[0])
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		errs, err := command.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		connected := make(chan struct{}, 10)
		go func() {
			for lines := bufio.NewScanner(errs); lines.Scan(); {
				if strings.Contains(lines.Text(), "connected (websocket)") {
					connected <- struct{}{}
				}
			}
		}()
		select {
		case <-connected:
		case <-time.After(30 * time.Second):
			_ = command.Process.Kill()
			t.Fatal("the program did not connect")
		}
		reader := bufio.NewReader(output)
		next = func() string {
			line, err := reader.ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			return strings.TrimSpace(line)
		}
		return next, func() {
			_ = command.Process.Signal(os.Interrupt)
			_, _ = io.Copy(io.Discard, reader)
			_ = command.Wait()
		}
	}
	send := func() {
		t.Helper()
		if output, err := exec.Command(paths[1]).CombinedOutput(); err != nil || !bytes.Contains(output, []byte("accepted: ")) {
			t.Errorf("%v %s", err, output)
		}
	}
	next, stop := listen()
	send()
	if got := next(); got != "Hello" {
		t.Errorf("%q", got)
	}
	stop()
	send()
	next, stop = listen()
	if got := next(); got != "Hello" {
		t.Errorf("after the restart: %q", got)
	}
	stop()
}

// Everything exported has a comment, except constants of a group and fields.
func TestEverythingIsDocumented(t *testing.T) {
	for _, folder := range []string{"../../client", "../../server"} {
		names, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		set := token.NewFileSet()
		for _, name := range names {
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		documented, err := doc.NewFromFiles(set, files, folder)
		if err != nil {
			t.Fatal(err)
		}
		need := func(name, text string) {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s: %s has no comment", folder, name)
			}
		}
		need("the package", documented.Doc)
		funcs := documented.Funcs
		for _, one := range documented.Types {
			need(one.Name, one.Doc)
			funcs = append(append(funcs, one.Funcs...), one.Methods...)
		}
		for _, one := range funcs {
			need(one.Recv+" "+one.Name, one.Doc)
		}
	}
}
