package main

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/pingcap/badger"
	"github.com/pingcap/badger/y"
	"github.com/pingcap/errors"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv/mvcc"
)

// Locks lie beside the rows, below a byte that no region reaches.
var lockPrefix = []byte{0xff, 'l', 'o', 'c', 'k'}

// pieceBytes and pieceOps bound one badger transaction. badger documents a limit of 15 % of its memtable (64 MiB) and
// this version does not check it; a request of hundreds of megabytes must not depend on that, nor keep every other
// request waiting for one write.
const (
	pieceBytes = 4 << 20
	pieceOps   = 16 << 10
)

// durableWriter writes what a request changes, and acknowledges it when it is on disk.
//
// unistore's own writer keeps locks in memory and dumps them at a regular end: after kill -9 a committed transaction
// whose secondaries were not yet resolved would have lost them. Here the lock of a key and its row or rollback record
// go into one badger transaction.
type durableWriter struct {
	mvcc.DBWriter // keeps the latest timestamp, and deletes ranges
	bundle        *mvcc.DBBundle
	queue         chan *batch
	ctx           context.Context
	stop          context.CancelFunc
	running       sync.WaitGroup
}

func newDurableWriter(bundle *mvcc.DBBundle) *durableWriter {
	w := &durableWriter{DBWriter: tikv.NewDBWriter(bundle), bundle: bundle, queue: make(chan *batch, 1024)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *durableWriter) Open() {
	w.DBWriter.Open()
	w.running.Add(1)
	go w.run()
}

func (w *durableWriter) Close() {
	w.stop()
	w.running.Wait()
	w.DBWriter.Close()
}

func (w *durableWriter) NewWriteBatch(startTS, commitTS uint64, ctx *kvrpcpb.Context) mvcc.WriteBatch {
	w.DBWriter.NewWriteBatch(startTS, commitTS, ctx)
	return &batch{startTS: startTS, commitTS: commitTS}
}

// Write returns when the batch is durable. The caller holds the latches of its keys meanwhile.
func (w *durableWriter) Write(wb mvcc.WriteBatch) error {
	b := wb.(*batch)
	if len(b.ops) == 0 {
		return nil
	}
	b.done = make(chan error, 1)
	select {
	case w.queue <- b:
	case <-w.ctx.Done():
		return errors.New("the store is closed")
	}
	select {
	case err := <-b.done:
		return err
	case <-w.ctx.Done():
		return errors.New("the store is closed")
	}
}

// run takes all batches that wait into one flush: requests that come side by side share an fsync.
func (w *durableWriter) run() {
	defer w.running.Done()
	for {
		select {
		case <-w.ctx.Done():
			return
		case first := <-w.queue:
			group := []*batch{first}
			for waiting := len(w.queue); waiting > 0; waiting-- {
				group = append(group, <-w.queue)
			}
			err := w.flush(group)
			for _, b := range group {
				b.done <- err
			}
		}
	}
}

// flush writes the batches in pieces that badger takes.
//
// A crash between two pieces leaves a request half applied. Percolator allows that, and TiKV does it too (it resolves
// a transaction's locks 256 at a time): no key's state depends on another key of the same request. A prewritten key
// counts for nothing until the primary is committed, a committed or rolled back secondary only says again what the
// primary says, and the primary is one key, whose lock and record are in one piece. The client got no answer, so it
// sends the request again, and each key that was done is found so.
func (w *durableWriter) flush(group []*batch) error {
	var piece []op
	var size int
	for _, b := range group {
		for _, o := range b.ops {
			if len(piece) > 0 && (size+o.size() > pieceBytes || len(piece) == pieceOps) {
				if err := w.apply(piece); err != nil {
					return err
				}
				piece, size = piece[:0], 0
			}
			piece = append(piece, o)
			size += o.size()
		}
	}
	return w.apply(piece)
}

// apply makes one piece durable, then visible: a reader must not see a lock, or the lack of one, that a crash undoes.
//
// badger keeps one write for each key and transaction, whatever the versions; no key is in a piece twice, because each
// waiting request holds the latches of its keys.
func (w *durableWriter) apply(piece []op) error {
	version := atomic.AddUint64(&w.bundle.StateTS, 1)
	err := w.bundle.DB.Update(func(txn *badger.Txn) error {
		for _, o := range piece {
			if o.record != nil {
				if err := txn.SetEntry(o.record); err != nil {
					return err
				}
			}
			if o.lock == lockKept {
				continue
			}
			entry := &badger.Entry{Key: y.KeyWithTs(append(lockPrefix[:len(lockPrefix):len(lockPrefix)], o.key...), version)}
			if o.lock == lockPut {
				entry.Value = o.value
			} else {
				entry.SetDelete()
			}
			if err := txn.SetEntry(entry); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range piece {
		switch o.lock {
		case lockPut:
			w.bundle.LockStore.Put(o.key, o.value)
		case lockDeleted:
			w.bundle.LockStore.Delete(o.key)
		}
	}
	return nil
}

// loadLocks puts the locks of the last run back into memory.
func loadLocks(bundle *mvcc.DBBundle) (count int, err error) {
	err = bundle.DB.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Seek(lockPrefix); it.ValidForPrefix(lockPrefix); it.Next() {
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			bundle.LockStore.Put(it.Item().KeyCopy(nil)[len(lockPrefix):], value)
			count++
		}
		return nil
	})
	return count, err
}

type lockChange int

const (
	lockKept lockChange = iota
	lockPut
	lockDeleted
)

// op is all that one request changes at one key.
type op struct {
	key    []byte
	lock   lockChange
	value  []byte        // of the lock that is put
	record *badger.Entry // a row, a rollback or the commit of a lock; nil: none
}

func (o op) size() int {
	size := len(o.key) + len(o.value) + 64
	if o.record != nil {
		size += len(o.record.Key.UserKey) + len(o.record.Value)
	}
	return size
}

// batch implements mvcc.WriteBatch: what one request changes.
type batch struct {
	startTS, commitTS uint64
	ops               []op
	done              chan error
}

func (b *batch) Prewrite(key []byte, lock *mvcc.Lock) {
	if len(lock.Secondaries) > 0 && !bytes.Equal(key, lock.Primary) {
		// unistore keeps the list of an async commit in every lock, TiKV in the primary's: a thousand rows took 35 MB.
		secondary := *lock
		secondary.Secondaries, secondary.SecondaryNum = nil, 0
		lock = &secondary
	}
	if isMarked(key, kvrpcpb.Op(lock.Op)) {
		unmarked := *lock
		unmarked.Value = unmark(lock.Value)
		lock = &unmarked
	}
	b.putLock(key, lock)
}

// PessimisticLock is also how unistore changes the TTL of any lock.
func (b *batch) PessimisticLock(key []byte, lock *mvcc.Lock) { b.putLock(key, lock) }

func (b *batch) putLock(key []byte, lock *mvcc.Lock) {
	b.ops = append(b.ops, op{key: key, lock: lockPut, value: lock.MarshalBinary()})
}

func (b *batch) PessimisticRollback(key []byte) {
	b.ops = append(b.ops, op{key: key, lock: lockDeleted})
}

func (b *batch) Commit(key []byte, lock *mvcc.Lock) {
	change := op{key: key, lock: lockDeleted}
	meta := mvcc.NewDBUserMeta(b.startTS, b.commitTS)
	switch {
	case lock.Op == uint8(kvrpcpb.Op_PessimisticLock):
		// Nothing was prewritten.
	case lock.Op != uint8(kvrpcpb.Op_Lock):
		change.record = &badger.Entry{Key: y.KeyWithTs(key, b.commitTS), Value: lock.Value, UserMeta: meta}
	case bytes.Equal(key, lock.Primary):
		status := mvcc.EncodeExtraTxnStatusKey(key, b.startTS)
		change.record = &badger.Entry{Key: y.KeyWithTs(status, b.startTS), UserMeta: meta}
	}
	b.ops = append(b.ops, change)
}

func (b *batch) Rollback(key []byte, deleteLock bool) {
	status := mvcc.EncodeExtraTxnStatusKey(key, b.startTS)
	record := &badger.Entry{Key: y.KeyWithTs(status, b.startTS), UserMeta: mvcc.NewDBUserMeta(b.startTS, 0)}
	change := op{key: key, record: record}
	if deleteLock {
		change.lock = lockDeleted
	}
	b.ops = append(b.ops, change)
}
