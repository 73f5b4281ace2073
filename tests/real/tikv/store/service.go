package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/pingcap/kvproto/pkg/errorpb"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv/dbreader"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv/mvcc"
	"github.com/pingcap/tidb/pkg/util/rowcodec"
)

// service is what is served, and nothing else: unistore acknowledges many requests that it does not carry out (Raw*,
// SplitRegion, KvImport), and ends the process at others. Those are answered by "unimplemented".
//
// Requests go to unistore but for the guarantees of TiKV that it does not give; each method says which.
type service struct {
	tikvpb.UnimplementedTikvServer
	upstream *tikv.Server
	bundle   *mvcc.DBBundle
	regions  tikv.RegionManager
	latches  *keyLatches
}

func newService(upstream *tikv.Server, bundle *mvcc.DBBundle, regions tikv.RegionManager) *service {
	return &service{upstream: upstream, bundle: bundle, regions: regions, latches: newKeyLatches()}
}

// KvPrewrite locks each key on its own, as TiKV does.
//
// unistore answers "done" as soon as one key of the request is locked by the transaction already, and leaves the
// others: rows would be lost where a request is sent again with other keys beside. It looks for a rollback record at
// the primary only: a late task could lock keys of a transaction that was cleaned up. And it takes the keys that look
// like those of a TiDB table for rows in TiDB's first format, and converts them.
func (s *service) KvPrewrite(ctx context.Context, r *kvrpcpb.PrewriteRequest) (*kvrpcpb.PrewriteResponse, error) {
	keys := make([][]byte, len(r.Mutations))
	for i, mutation := range r.Mutations {
		keys[i] = mutation.Key
	}
	if err := s.outside(r.Context, keys...); err != nil {
		return &kvrpcpb.PrewriteResponse{RegionError: err}, nil
	}
	if refused := refusedMutation(r.Mutations); refused != nil {
		return &kvrpcpb.PrewriteResponse{Errors: []*kvrpcpb.KeyError{refused}}, nil
	}
	for _, mutation := range r.Mutations {
		if isMarked(mutation.Key, mutation.Op) {
			mutation.Value = mark(mutation.Value)
		}
	}
	// One-phase commit would go past the writer's place for marks; a store may always decline it.
	r.TryOnePc = false
	if r.ForUpdateTs > 0 {
		return s.upstream.KvPrewrite(ctx, r)
	}
	s.latches.acquire(keys)
	defer s.latches.release(keys)
	if err := s.rolledBack(r); err != nil {
		return &kvrpcpb.PrewriteResponse{Errors: []*kvrpcpb.KeyError{err}}, nil
	}
	left := r.Mutations[:0:0]
	for _, mutation := range r.Mutations {
		if lock := s.lock(mutation.Key); lock == nil || lock.StartTS != r.StartVersion {
			left = append(left, mutation)
		}
	}
	if len(left) == 0 && len(r.Mutations) > 0 {
		// The region is asked all the same: an epoch that has passed is an error for a repeated request too.
		if _, err := s.regions.GetRegionFromCtx(r.Context); err != nil {
			return &kvrpcpb.PrewriteResponse{RegionError: err}, nil
		}
		return &kvrpcpb.PrewriteResponse{}, nil
	}
	r.Mutations = left
	return s.upstream.KvPrewrite(ctx, r)
}

// refusedMutation is a put of an empty value: unistore could not tell it from a delete.
func refusedMutation(mutations []*kvrpcpb.Mutation) *kvrpcpb.KeyError {
	for _, mutation := range mutations {
		isPut := mutation.Op == kvrpcpb.Op_Put || mutation.Op == kvrpcpb.Op_Insert
		if isPut && len(mutation.Value) == 0 {
			said := fmt.Sprintf("key %x: this store cannot tell an empty value from a deleted key", mutation.Key)
			return &kvrpcpb.KeyError{Abort: said}
		}
	}
	return nil
}

// rolledBack is TiKV's answer to a prewrite that comes after the rollback of its key.
func (s *service) rolledBack(r *kvrpcpb.PrewriteRequest) *kvrpcpb.KeyError {
	txn := s.bundle.DB.NewTransaction(false)
	defer txn.Discard()
	txn.SetReadTS(math.MaxUint64)
	for _, mutation := range r.Mutations {
		item, err := txn.Get(mvcc.EncodeExtraTxnStatusKey(mutation.Key, r.StartVersion))
		if err != nil || mvcc.DBUserMeta(item.UserMeta()).CommitTS() != 0 {
			continue
		}
		return &kvrpcpb.KeyError{Conflict: &kvrpcpb.WriteConflict{
			StartTs:          r.StartVersion,
			ConflictTs:       r.StartVersion,
			ConflictCommitTs: r.StartVersion,
			Key:              mutation.Key,
			Primary:          r.PrimaryLock,
			Reason:           kvrpcpb.WriteConflict_SelfRolledBack,
		}}
	}
	return nil
}

// KvCommit takes a key for committed whatever the commit timestamp in the request and whatever was written later.
//
// unistore finds a commit only as the newest record up to the timestamp of the request.
func (s *service) KvCommit(ctx context.Context, r *kvrpcpb.CommitRequest) (*kvrpcpb.CommitResponse, error) {
	if err := s.outside(r.Context, r.Keys...); err != nil {
		return &kvrpcpb.CommitResponse{RegionError: err}, nil
	}
	s.latches.acquire(r.Keys)
	defer s.latches.release(r.Keys)
	left := r.Keys[:0:0]
	for _, key := range r.Keys {
		lock := s.lock(key)
		if (lock != nil && lock.StartTS == r.StartVersion) || !s.committed(key, r.StartVersion) {
			left = append(left, key)
		}
	}
	if len(left) == 0 && len(r.Keys) > 0 {
		if _, err := s.regions.GetRegionFromCtx(r.Context); err != nil {
			return &kvrpcpb.CommitResponse{RegionError: err}, nil
		}
		return &kvrpcpb.CommitResponse{}, nil
	}
	r.Keys = left
	return s.upstream.KvCommit(ctx, r)
}

// committed is whether the transaction has a row, a delete or the commit of a lock at the key.
func (s *service) committed(key []byte, startTS uint64) bool {
	txn := s.bundle.DB.NewTransaction(false)
	defer txn.Discard()
	txn.SetReadTS(math.MaxUint64)
	if item, err := txn.Get(mvcc.EncodeExtraTxnStatusKey(key, startTS)); err == nil {
		return mvcc.DBUserMeta(item.UserMeta()).CommitTS() != 0
	}
	it := dbreader.NewIterator(txn, false, key, append(key[:len(key):len(key)], 0))
	defer it.Close()
	it.SetAllVersions(true)
	for it.Seek(key); it.Valid() && bytes.Equal(it.Item().Key(), key); it.Next() {
		if mvcc.DBUserMeta(it.Item().UserMeta()).StartTS() == startTS {
			return true
		}
	}
	return false
}

// KvScanLock keeps to the range and the limit of the request, and to a maximum that is part of the range.
//
// unistore begins at the region's start every time, leaves out the maximum, and finds nothing without a limit.
func (s *service) KvScanLock(_ context.Context, r *kvrpcpb.ScanLockRequest) (*kvrpcpb.ScanLockResponse, error) {
	region, regionErr := s.regions.GetRegionFromCtx(r.Context)
	if regionErr != nil {
		return &kvrpcpb.ScanLockResponse{RegionError: regionErr}, nil
	}
	start, end := region.RawStart(), region.RawEnd()
	if bytes.Compare(r.StartKey, start) > 0 {
		start = r.StartKey
	}
	if len(r.EndKey) > 0 && (len(end) == 0 || bytes.Compare(r.EndKey, end) < 0) {
		end = r.EndKey
	}
	response := &kvrpcpb.ScanLockResponse{}
	it := s.bundle.LockStore.NewIterator()
	for it.Seek(start); it.Valid(); it.Next() {
		isPast := len(end) > 0 && bytes.Compare(it.Key(), end) >= 0
		if isPast || (r.Limit > 0 && len(response.Locks) == int(r.Limit)) {
			break
		}
		if lock := mvcc.DecodeLock(it.Value()); lock.StartTS <= r.MaxVersion {
			response.Locks = append(response.Locks, lock.ToLockInfo(bytes.Clone(it.Key())))
		}
	}
	return response, nil
}

// KvTxnHeartBeat says that there is no such transaction as TiKV says it, not in words alone.
func (s *service) KvTxnHeartBeat(ctx context.Context, r *kvrpcpb.TxnHeartBeatRequest) (*kvrpcpb.TxnHeartBeatResponse, error) {
	if err := s.outside(r.Context, r.PrimaryLock); err != nil {
		return &kvrpcpb.TxnHeartBeatResponse{RegionError: err}, nil
	}
	response, err := s.upstream.KvTxnHeartBeat(ctx, r)
	if lock := s.lock(r.PrimaryLock); response.GetError() != nil && (lock == nil || lock.StartTS != r.StartVersion) {
		response.Error = &kvrpcpb.KeyError{
			TxnNotFound: &kvrpcpb.TxnNotFound{StartTs: r.StartVersion, PrimaryKey: r.PrimaryLock},
		}
	}
	return response, err
}

// KvGet says that there is no value; unistore leaves it at an empty one.
func (s *service) KvGet(ctx context.Context, r *kvrpcpb.GetRequest) (*kvrpcpb.GetResponse, error) {
	if err := s.outside(r.Context, r.Key); err != nil {
		return &kvrpcpb.GetResponse{RegionError: err}, nil
	}
	response, err := s.upstream.KvGet(ctx, r)
	if response != nil && response.Error == nil && response.RegionError == nil && len(response.Value) == 0 {
		response.NotFound = true
	}
	return response, err
}

func (s *service) KvBatchGet(ctx context.Context, r *kvrpcpb.BatchGetRequest) (*kvrpcpb.BatchGetResponse, error) {
	if err := s.outside(r.Context, r.Keys...); err != nil {
		return &kvrpcpb.BatchGetResponse{RegionError: err}, nil
	}
	return s.upstream.KvBatchGet(ctx, r)
}

// KvScan ends with the region, as TiKV's does: unistore would read on into keys of other regions.
func (s *service) KvScan(ctx context.Context, r *kvrpcpb.ScanRequest) (*kvrpcpb.ScanResponse, error) {
	region, regionErr := s.regions.GetRegionFromCtx(r.Context)
	if regionErr != nil {
		return &kvrpcpb.ScanResponse{RegionError: regionErr}, nil
	}
	low, high := &r.StartKey, &r.EndKey
	if r.Reverse {
		low, high = high, low
	}
	if bytes.Compare(*low, region.RawStart()) < 0 {
		*low = region.RawStart()
	}
	if end := region.RawEnd(); len(end) > 0 && (len(*high) == 0 || bytes.Compare(*high, end) > 0) {
		*high = end
	}
	return s.upstream.KvScan(ctx, r)
}

func (s *service) KvBatchRollback(ctx context.Context, r *kvrpcpb.BatchRollbackRequest) (*kvrpcpb.BatchRollbackResponse, error) {
	if err := s.outside(r.Context, r.Keys...); err != nil {
		return &kvrpcpb.BatchRollbackResponse{RegionError: err}, nil
	}
	return s.upstream.KvBatchRollback(ctx, r)
}

func (s *service) KvCheckTxnStatus(ctx context.Context, r *kvrpcpb.CheckTxnStatusRequest) (*kvrpcpb.CheckTxnStatusResponse, error) {
	if err := s.outside(r.Context, r.PrimaryKey); err != nil {
		return &kvrpcpb.CheckTxnStatusResponse{RegionError: err}, nil
	}
	return s.upstream.KvCheckTxnStatus(ctx, r)
}

func (s *service) KvResolveLock(ctx context.Context, r *kvrpcpb.ResolveLockRequest) (*kvrpcpb.ResolveLockResponse, error) {
	if err := s.outside(r.Context, r.Keys...); err != nil {
		return &kvrpcpb.ResolveLockResponse{RegionError: err}, nil
	}
	return s.upstream.KvResolveLock(ctx, r)
}

func (s *service) KvCheckSecondaryLocks(ctx context.Context, r *kvrpcpb.CheckSecondaryLocksRequest) (*kvrpcpb.CheckSecondaryLocksResponse, error) {
	return s.upstream.KvCheckSecondaryLocks(ctx, r)
}

func (s *service) KvPessimisticLock(ctx context.Context, r *kvrpcpb.PessimisticLockRequest) (*kvrpcpb.PessimisticLockResponse, error) {
	return s.upstream.KvPessimisticLock(ctx, r)
}

func (s *service) KVPessimisticRollback(ctx context.Context, r *kvrpcpb.PessimisticRollbackRequest) (*kvrpcpb.PessimisticRollbackResponse, error) {
	return s.upstream.KVPessimisticRollback(ctx, r)
}

func (s *service) KvCleanup(ctx context.Context, r *kvrpcpb.CleanupRequest) (*kvrpcpb.CleanupResponse, error) {
	return s.upstream.KvCleanup(ctx, r)
}

func (s *service) MvccGetByKey(ctx context.Context, r *kvrpcpb.MvccGetByKeyRequest) (*kvrpcpb.MvccGetByKeyResponse, error) {
	return s.upstream.MvccGetByKey(ctx, r)
}

// outside is TiKV's answer to a key that is not in the region of the request; unistore takes it.
func (s *service) outside(ctx *kvrpcpb.Context, keys ...[]byte) *errorpb.Error {
	region, err := s.regions.GetRegionFromCtx(ctx)
	if err != nil {
		return nil // unistore says so itself
	}
	start, end := region.RawStart(), region.RawEnd()
	for _, key := range keys {
		if bytes.Compare(key, start) >= 0 && (len(end) == 0 || bytes.Compare(key, end) < 0) {
			continue
		}
		meta := region.Meta()
		return &errorpb.Error{
			Message: fmt.Sprintf("key %s is not in region %d", hex.EncodeToString(key), meta.Id),
			KeyNotInRegion: &errorpb.KeyNotInRegion{
				Key: key, RegionId: meta.Id, StartKey: meta.StartKey, EndKey: meta.EndKey,
			},
		}
	}
	return nil
}

func (s *service) lock(key []byte) *mvcc.Lock {
	value := s.bundle.LockStore.Get(key, nil)
	if len(value) == 0 {
		return nil
	}
	lock := mvcc.DecodeLock(value)
	return &lock
}

// isMarked is whether unistore would convert the value: its test looks at two bytes of the key and one of the value. A
// marked value begins with the byte that says "converted already"; the writer takes it off again.
func isMarked(key []byte, op kvrpcpb.Op) bool {
	return (op == kvrpcpb.Op_Put || op == kvrpcpb.Op_Insert) && rowcodec.IsRowKey(key)
}

func mark(value []byte) []byte { return append([]byte{rowcodec.CodecVer}, value...) }

func unmark(value []byte) []byte { return value[1:] }
