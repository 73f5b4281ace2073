package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/pingcap/errors"
	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/log"
	"github.com/pingcap/tidb/pkg/store/mockstore/unistore/pd"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
)

const (
	callTimeout   = time.Second
	retryInterval = 200 * time.Millisecond
	callAttempts  = 100
	beatInterval  = time.Second
)

// placement is the store's client of PD.
//
// unistore's own has no TLS, waits up to two minutes before it tries a restarted PD again, and tells PD about a region
// once: a PD that was restarted, or took over from another, would know no leader of any region.
type placement struct {
	pd.Client   // nil: what unistore asks only where it runs raft
	credentials credentials.TransportCredentials
	clusterID   uint64
	ctx         context.Context
	stop        context.CancelFunc
	changed     chan struct{}

	mu        sync.Mutex
	endpoints []string
	leader    string // "": to be found
	conns     map[string]*grpc.ClientConn
	regions   map[uint64]*pdpb.RegionHeartbeatRequest
}

func newPlacement(endpoints []string, creds credentials.TransportCredentials) (*placement, error) {
	p := &placement{
		credentials: creds,
		endpoints:   endpoints,
		conns:       map[string]*grpc.ClientConn{},
		regions:     map[uint64]*pdpb.RegionHeartbeatRequest{},
		changed:     make(chan struct{}, 1),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	err := p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		members, err := client.GetMembers(ctx, &pdpb.GetMembersRequest{})
		p.clusterID = members.GetHeader().GetClusterId()
		return members.GetHeader(), err
	})
	go p.beat()
	return p, err
}

// call asks PD's leader, and whoever is the leader later where it does not answer.
func (p *placement) call(ask func(context.Context, pdpb.PDClient) (*pdpb.ResponseHeader, error)) error {
	var err error
	for range callAttempts {
		var client pdpb.PDClient
		if client, err = p.leaderClient(); err == nil {
			ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
			var header *pdpb.ResponseHeader
			header, err = ask(ctx, client)
			cancel()
			if err == nil && header.GetError() != nil {
				err = errors.New(header.GetError().String())
			}
			if err == nil {
				return nil
			}
			p.forgetLeader()
		}
		select {
		case <-time.After(retryInterval):
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
	return fmt.Errorf("PD does not answer: %w", err)
}

func (p *placement) leaderClient() (pdpb.PDClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leader != "" {
		return p.client(p.leader)
	}
	err := errors.New("no endpoints")
	for _, endpoint := range p.endpoints {
		var client pdpb.PDClient
		if client, err = p.client(endpoint); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
		var members *pdpb.GetMembersResponse
		members, err = client.GetMembers(ctx, &pdpb.GetMembersRequest{})
		cancel()
		if err == nil && len(members.GetLeader().GetClientUrls()) == 0 {
			err = errors.New("PD has no leader")
		}
		if err != nil {
			continue
		}
		p.leader = members.GetLeader().GetClientUrls()[0]
		log.Info("leader of PD", zap.String("at", p.leader))
		return p.client(p.leader)
	}
	return nil, err
}

func (p *placement) forgetLeader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leader = ""
}

// client is the one of an endpoint, with or without a scheme; the caller holds mu.
func (p *placement) client(endpoint string) (pdpb.PDClient, error) {
	host := endpoint
	if strings.Contains(endpoint, "://") {
		at, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		host = at.Host
	}
	if p.conns[host] == nil {
		soon := backoff.Config{BaseDelay: retryInterval, Multiplier: 1, MaxDelay: retryInterval}
		conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(p.credentials),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: callTimeout}))
		if err != nil {
			return nil, err
		}
		p.conns[host] = conn
	}
	return pdpb.NewPDClient(p.conns[host]), nil
}

func (p *placement) header() *pdpb.RequestHeader { return &pdpb.RequestHeader{ClusterId: p.clusterID} }

func (p *placement) Close() { p.stop() }

func (p *placement) GetClusterID(context.Context) uint64 { return p.clusterID }

func (p *placement) AllocID(context.Context) (id uint64, err error) {
	err = p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		response, err := client.AllocID(ctx, &pdpb.AllocIDRequest{Header: p.header()})
		id = response.GetId()
		return response.GetHeader(), err
	})
	return id, err
}

func (p *placement) Bootstrap(_ context.Context, store *metapb.Store, region *metapb.Region) (response *pdpb.BootstrapResponse, err error) {
	err = p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		var err error
		response, err = client.Bootstrap(ctx, &pdpb.BootstrapRequest{Header: p.header(), Store: store, Region: region})
		return response.GetHeader(), err
	})
	return response, err
}

func (p *placement) PutStore(_ context.Context, store *metapb.Store) error {
	// PD refuses a store whose version is older than its own idea of the cluster's.
	return p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		response, err := client.PutStore(ctx, &pdpb.PutStoreRequest{Header: p.header(), Store: store})
		return response.GetHeader(), err
	})
}

func (p *placement) StoreHeartbeat(_ context.Context, stats *pdpb.StoreStats) error {
	return p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		response, err := client.StoreHeartbeat(ctx, &pdpb.StoreHeartbeatRequest{Header: p.header(), Stats: stats})
		return response.GetHeader(), err
	})
}

func (p *placement) GetGCSafePoint(context.Context) (safePoint uint64, err error) {
	err = p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		response, err := client.GetGCSafePoint(ctx, &pdpb.GetGCSafePointRequest{Header: p.header()})
		safePoint = response.GetSafePoint()
		return response.GetHeader(), err
	})
	return safePoint, err
}

func (p *placement) GetTS(context.Context) (physical, logical int64, err error) {
	err = p.call(func(ctx context.Context, client pdpb.PDClient) (*pdpb.ResponseHeader, error) {
		stream, err := client.Tso(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&pdpb.TsoRequest{Header: p.header(), Count: 1}); err != nil {
			return nil, err
		}
		response, err := stream.Recv()
		physical, logical = response.GetTimestamp().GetPhysical(), response.GetTimestamp().GetLogical()
		return response.GetHeader(), err
	})
	return physical, logical, err
}

// ReportRegion tells PD about a new or changed region, now and again every second.
func (p *placement) ReportRegion(request *pdpb.RegionHeartbeatRequest) {
	// Each one sent is a copy: unistore changes its own, and a stream marshals later than Send returns.
	request.Header = p.header()
	p.mu.Lock()
	p.regions[request.Region.Id] = request
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// beat reports all regions for as long as the store lives, to whoever leads PD.
//
// After a split PD takes the right part, which keeps the region's id, before the left one: until then the left part
// overlaps a region with a newer epoch and is refused. It is taken a second later.
func (p *placement) beat() {
	for p.ctx.Err() == nil {
		if err := p.stream(); err != nil && p.ctx.Err() == nil {
			log.Warn("region heartbeats are interrupted", zap.Error(err))
			p.forgetLeader()
			time.Sleep(retryInterval)
		}
	}
}

func (p *placement) stream() error {
	client, err := p.leaderClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stream, err := client.RegionHeartbeat(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			// PD's orders (move a peer, change the leader) have no meaning on one node.
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for {
		p.mu.Lock()
		requests := make([]pdpb.RegionHeartbeatRequest, 0, len(p.regions))
		for _, request := range p.regions {
			requests = append(requests, *request)
		}
		p.mu.Unlock()
		for i := range requests {
			if err := stream.Send(&requests[i]); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-p.changed:
		case err := <-ended:
			return err
		}
	}
}
