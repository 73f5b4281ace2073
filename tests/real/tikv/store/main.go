// Command store serves TiKV's gRPC protocol for tests, from one process: TiDB's embedded unistore, registered with a
// real PD, with what a test of crashes needs and unistore does not have. README.md says what differs from TiKV.
package main

import (
	"context"
	"flag"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pingcap/badger"
	"github.com/pingcap/badger/options"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/pingcap/log"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/config"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/lockstore"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/tikv/mvcc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// A client that sends a larger request is told so; TiKV's own limit is in the same range.
const messageBytes = 64 << 20

func main() {
	addr := flag.String("addr", "127.0.0.1:20160", "listen here, and say so to PD")
	pdAddrs := flag.String("pd", "127.0.0.1:2379", "PD, comma separated")
	dataDir := flag.String("data-dir", "", "folder of the data")
	regionSize := flag.Int64("region-size", 96<<20, "a region of more than one and a half times as many bytes is split")
	var files tlsFiles
	flag.StringVar(&files.ca, "ca", "", "TLS: the authority that clients and PD are of")
	flag.StringVar(&files.cert, "cert", "", "TLS: certificate")
	flag.StringVar(&files.key, "key", "", "TLS: its key")
	flag.Parse()

	toPD, serve, err := files.credentials()
	must("read the certificates", err)
	// Listening comes first: a port that is taken must end the process before it registers with PD.
	listener, err := net.Listen("tcp", *addr)
	must("listen", err)
	placement, err := newPlacement(strings.Split(*pdAddrs, ","), toPD)
	must("find PD", err)

	conf := config.DefaultConf
	conf.Server.Raft = false
	conf.Server.StoreAddr = *addr
	conf.Server.RegionSize = *regionSize
	conf.Engine.DBPath = *dataDir
	safePoint := &tikv.SafePoint{}
	bundle := &mvcc.DBBundle{DB: openDB(filepath.Join(*dataDir, "kv"), safePoint), LockStore: lockstore.NewMemStore(8 << 20)}
	physical, logical, err := placement.GetTS(context.Background())
	must("draw a timestamp", err)
	// The version of what is not under Percolator (locks, regions): it must grow over restarts.
	bundle.StateTS = uint64(physical)<<18 + uint64(logical)
	locks, err := loadLocks(bundle)
	must("load the locks", err)

	regionOptions := tikv.RegionOptions{StoreAddr: *addr, PDAddr: *pdAddrs, RegionSize: *regionSize}
	regions := tikv.NewStandAloneRegionManager(bundle, regionOptions, placement)
	inner := tikv.NewStandAlongInnerServer(bundle)
	store := tikv.NewMVCCStore(&conf, bundle, *dataDir, safePoint, newDurableWriter(bundle), placement)
	store.DeadlockDetectSvr.ChangeRole(tikv.Leader)
	store.StartDeadlockDetection(false)
	upstream := tikv.NewServer(regions, store, inner)

	server := grpc.NewServer(
		grpc.Creds(serve),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(messageBytes), grpc.MaxSendMsgSize(messageBytes),
	)
	tikvpb.RegisterTikvServer(server, newService(upstream, bundle, regions))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() { <-ctx.Done(); server.Stop() }()
	log.Info("serving", zap.String("addr", *addr), zap.Int("locks", locks))
	must("serve", server.Serve(listener))
	upstream.Stop()
	placement.Close()
}

// wholeTables lets tables grow to their full size. unistore's guards end one after 64 KiB wherever two neighbours differ in
// their first 64 bytes: some hundred megabytes of locks are thousands of open files, and where those run out, no compaction
// succeeds and no write goes on.
type wholeTables struct{ badger.CompactionFilter }

func (wholeTables) Guards() []badger.Guard { return nil }

func must(what string, err error) {
	if err != nil {
		log.Fatal("cannot "+what, zap.Error(err))
	}
}

// openDB opens badger as unistore does, but for SyncWrites: what is acknowledged survives the loss of the machine.
func openDB(dir string, safePoint *tikv.SafePoint) *badger.DB {
	must("make the folder", os.MkdirAll(dir, 0o755))
	o := badger.DefaultOptions
	o.Dir, o.ValueDir = dir, dir
	o.ManagedTxns = true
	o.ValueThreshold = 0
	o.ValueLogWriteOptions.WriteBufferSize = 4 << 20
	o.ValueLogFileSize, o.ValueLogMaxNumFiles = 256<<20, 3
	o.MaxMemTableSize, o.NumMemtables = 64<<20, 3
	o.TableBuilderOptions.MaxTableSize = 8 << 20
	o.TableBuilderOptions.CompressionPerLevel = make([]options.CompressionType, 7)
	o.TableBuilderOptions.SuRFStartLevel = 8
	o.NumLevelZeroTables, o.NumLevelZeroTablesStall, o.LevelOneSize = 4, 8, 512<<20
	o.NumCompactors = 2
	o.MaxBlockCacheSize, o.MaxIndexCacheSize = 0, 0
	o.SyncWrites = true
	o.CompactL0WhenClose = false
	o.CompactionFilterFactory = func(level int, start, end []byte) badger.CompactionFilter {
		return wholeTables{safePoint.CreateCompactionFilter(level, start, end)}
	}
	db, err := badger.Open(o)
	must("open the data", err)
	return db
}
