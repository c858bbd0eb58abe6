package protocol

import "slices"

// set keeps texts in the order in which they were added.
type set struct {
	has   map[string]struct{}
	order []string
}

func newSet() *set { return &set{has: map[string]struct{}{}} }

func (s *set) len() int { return len(s.order) }

func (s *set) contains(text string) bool {
	_, ok := s.has[text]
	return ok
}

func (s *set) add(text string) {
	if s.contains(text) {
		return
	}
	s.has[text] = struct{}{}
	s.order = append(s.order, text)
}

func (s *set) remove(text string) bool {
	if !s.contains(text) {
		return false
	}
	delete(s.has, text)
	if s.order[0] == text {
		s.order = s.order[1:]
		return true
	}
	at := slices.Index(s.order, text)
	s.order = slices.Delete(s.order, at, at+1)
	return true
}

// removeAll removes texts in one pass.
func (s *set) removeAll(texts []string) {
	for _, text := range texts {
		delete(s.has, text)
	}
	s.order = slices.DeleteFunc(s.order, func(text string) bool { return !s.contains(text) })
}

func (s *set) removeOldest() { s.remove(s.order[0]) }

func (s *set) clear() {
	clear(s.has)
	s.order = nil
}

// take empties the set.
func (s *set) take() []string {
	all := s.order
	s.clear()
	return all
}
