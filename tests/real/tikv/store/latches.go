package main

import "sync"

// keyLatches let one request at a time look at a key and change it.
//
// unistore has latches of its own, but they are taken inside of its methods: what is looked up before one is called
// must still be so when it runs.
type keyLatches struct {
	mu    sync.Mutex
	freed *sync.Cond
	taken map[string]struct{}
}

func newKeyLatches() *keyLatches {
	l := &keyLatches{taken: map[string]struct{}{}}
	l.freed = sync.NewCond(&l.mu)
	return l
}

// acquire takes all keys at once or waits, so that two requests never wait for each other.
func (l *keyLatches) acquire(keys [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.areFree(keys) {
		l.freed.Wait()
	}
	for _, key := range keys {
		l.taken[string(key)] = struct{}{}
	}
}

func (l *keyLatches) areFree(keys [][]byte) bool {
	for _, key := range keys {
		if _, isTaken := l.taken[string(key)]; isTaken {
			return false
		}
	}
	return true
}

func (l *keyLatches) release(keys [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		delete(l.taken, string(key))
	}
	l.freed.Broadcast()
}
