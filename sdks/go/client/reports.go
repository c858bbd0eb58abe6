package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// ReportStore keeps reports of opened messages until the service has them, so that they survive the process. Load is called once, by
// [New]; Save is called by one goroutine at a time.
type ReportStore interface {
	Load() ([]string, error)
	Save(ids []string) error
}

// FileReports keeps reports in a file. Each client needs a file of its own.
func FileReports(path string) ReportStore { return fileReports(path) }

type fileReports string

func (path fileReports) Load() ([]string, error) {
	text, err := os.ReadFile(string(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	if err := json.Unmarshal(text, &ids); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ids, nil
}

// Save replaces the file, so that a process that ends meanwhile leaves the old or the new one.
func (path fileReports) Save(ids []string) error {
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(path)), filepath.Base(string(path))+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), string(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// saver saves the newest reports in a goroutine that exists while there is something to save.
type saver struct {
	store  ReportStore
	failed func(error)

	mu        sync.Mutex
	newest    []string
	isDirty   bool
	isRunning bool
	// Closed when nothing is left to save.
	idle chan struct{}
}

func (s *saver) save(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest, s.isDirty = slices.Clone(ids), true
	if !s.isRunning {
		s.isRunning = true
		s.idle = make(chan struct{})
		go s.run()
	}
}

func (s *saver) run() {
	for {
		s.mu.Lock()
		if !s.isDirty {
			s.isRunning = false
			close(s.idle)
			s.mu.Unlock()
			return
		}
		ids := s.newest
		s.isDirty = false
		s.mu.Unlock()
		if err := s.store.Save(ids); err != nil {
			s.failed(err)
		}
	}
}

// wait returns when everything is saved, or when ctx ends.
func (s *saver) wait(ctx context.Context) error {
	s.mu.Lock()
	isRunning, idle := s.isRunning, s.idle
	s.mu.Unlock()
	if !isRunning {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
