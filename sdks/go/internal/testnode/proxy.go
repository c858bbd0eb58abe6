package testnode

import (
	"fmt"
	"net"
	"sync"
)

// Proxy is a TCP proxy that simulates faults of a network.
type Proxy struct {
	// URL is its address.
	URL    string
	target string

	mu       sync.Mutex
	listener net.Listener
	address  string
	frozen   chan struct{}
	pairs    map[*pair]struct{}
}

type pair struct {
	ends []net.Conn
	once sync.Once
}

func (p *pair) close() {
	p.once.Do(func() {
		for _, end := range p.ends {
			_ = end.Close()
		}
	})
}

// NewProxy returns a proxy to a port of this machine.
func NewProxy(port int) (*Proxy, error) {
	own := FreePort()
	p := &Proxy{
		URL: fmt.Sprintf("http://127.0.0.1:%d", own), address: fmt.Sprintf("127.0.0.1:%d", own), target: fmt.Sprintf("127.0.0.1:%d", port),
		pairs: map[*pair]struct{}{},
	}
	return p, p.listen()
}

func (p *Proxy) listen() error {
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = listener
	p.mu.Unlock()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.accept(client)
		}
	}()
	return nil
}

func (p *Proxy) accept(client net.Conn) {
	one := &pair{ends: []net.Conn{client}}
	p.mu.Lock()
	isFrozen := p.frozen != nil
	p.pairs[one] = struct{}{}
	p.mu.Unlock()
	if isFrozen {
		return // accepted, and never answered
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		one.close()
		return
	}
	p.mu.Lock()
	one.ends = append(one.ends, server)
	p.mu.Unlock()
	go p.forward(one, client, server)
	p.forward(one, server, client)
}

func (p *Proxy) forward(one *pair, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen // what arrived is lost
			return
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			one.close()
			p.mu.Lock()
			delete(p.pairs, one)
			p.mu.Unlock()
			return
		}
	}
}

// Freeze loses everything from now on. Connections stay; new ones are accepted and never answered.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Cut breaks all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	_ = p.listener.Close()
	p.mu.Unlock()
	p.breakAll()
}

func (p *Proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.pairs {
		one.close()
	}
	clear(p.pairs)
}

// Heal restores everything. Frozen connections break, as after a long loss of packets.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	frozen := p.frozen
	p.frozen = nil
	p.mu.Unlock()
	if frozen != nil {
		p.breakAll()
		close(frozen)
		return nil
	}
	return p.listen()
}

// Stop ends the proxy.
func (p *Proxy) Stop() {
	p.mu.Lock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
	p.mu.Unlock()
	p.Cut()
}
