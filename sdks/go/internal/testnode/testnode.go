// Package testnode starts a Noroshi node for tests: the binary that NOROSHI_BIN names, on free ports, with its data in a temporary
// folder.
package testnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The credentials of the app dev.
const (
	Key       = "go-key-with-all-scopes"
	JWTSecret = "go-secret-of-at-least-thirty-two-bytes"
	App       = "dev"
)

const patience = 60 * time.Second

// Node is a node, or one that was ended and can be started again.
type Node struct {
	// URL is its public address.
	URL         string
	http, admin int
	folder      string
	process     *exec.Cmd
	ended       chan struct{}
	output      *os.File
}

// Start starts a node and waits until it is ready.
func Start() (*Node, error) {
	if os.Getenv("NOROSHI_BIN") == "" {
		return nil, errors.New("NOROSHI_BIN does not name the binary of a node")
	}
	folder, err := os.MkdirTemp("", "noroshi-go-")
	if err != nil {
		return nil, err
	}
	n := &Node{http: FreePort(), admin: FreePort(), folder: folder}
	n.URL = fmt.Sprintf("http://127.0.0.1:%d", n.http)
	if n.output, err = os.Create(filepath.Join(folder, "log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := n.Spawn(); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// FreePort returns a port below the ephemeral range.
func FreePort() int {
	for {
		port := 11_000 + rand.IntN(21_000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = listener.Close()
			return port
		}
	}
}

// Port is the port of the public address.
func (n *Node) Port() int { return n.http }

// Spawn starts the process on the same ports and data.
func (n *Node) Spawn() error {
	local := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	n.process = exec.Command(os.Getenv("NOROSHI_BIN"), "serve", "--dev", "--data", filepath.Join(n.folder, "data"), "--http", local(n.http), "--admin", local(n.admin))
	n.process.Env = append(os.Environ(), "NOROSHI_DEV_KEY="+Key, "NOROSHI_DEV_JWT_SECRET="+JWTSecret)
	n.process.Stdout, n.process.Stderr = n.output, n.output
	if err := n.process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.ended = ended
	process := n.process
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if n.isReady(ctx) {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the node ended: %v\n%s", process.ProcessState, n.Log())
		case <-ctx.Done():
			return fmt.Errorf("the node is not ready after %v\n%s", patience, n.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *Node) isReady(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", n.admin), nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Log returns the end of the log.
func (n *Node) Log() string {
	file, err := os.Open(n.output.Name())
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > 4096 {
		_, _ = file.Seek(-4096, io.SeekEnd)
	}
	text, _ := io.ReadAll(file)
	return string(text)
}

// Kill ends the process with SIGKILL.
func (n *Node) Kill() error { return n.end(syscall.SIGKILL) }

// Drain ends the process with SIGTERM, and checks that it exits with 0.
func (n *Node) Drain() error {
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	if code := n.process.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the node exited with %d\n%s", code, n.Log())
	}
	return nil
}

func (n *Node) end(signal os.Signal) error {
	if err := n.process.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-n.ended:
		return nil
	case <-time.After(patience):
		_ = n.process.Process.Kill()
		<-n.ended
		return fmt.Errorf("the node did not end after %v\n%s", signal, n.Log())
	}
}

// Stop ends the node and removes its data.
func (n *Node) Stop() error {
	var err error
	if n.process != nil && n.process.Process != nil {
		err = n.end(syscall.SIGKILL)
	}
	return errors.Join(err, n.output.Close(), os.RemoveAll(n.folder))
}
