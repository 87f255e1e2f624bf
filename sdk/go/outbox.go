package runmesh

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	resultBytes    = 1 << 20
	frameBytes     = 3<<20 - 512 // what is around the results has room in the rest
	waitingResults = 512
)

// ErrEnded is what [Run.Send] gives when the run has ended, or nobody reads on.
var ErrEnded = errors.New("the run has ended")

// An outbox holds results until they are sent, and holds their author back when it is full. It
// numbers them: it is the only place that does.
type outbox struct {
	runID string

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  []*Result
	sizes    []int
	bytes    int
	sequence int64
	over     bool // the terminal result is in it, or has left
	closed   bool // nobody reads on
}

// newOutbox makes the outbox of a run whose results are read until reading ends.
func newOutbox(reading context.Context, runID string) *outbox {
	o := &outbox{runID: runID}
	o.changed = sync.NewCond(&o.mu)
	context.AfterFunc(reading, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.closed, o.waiting, o.sizes, o.bytes = true, nil, nil, 0
		o.changed.Broadcast()
	})
	return o
}

// put takes a result in, when there is room for it.
func (o *outbox) put(ctx context.Context, result *Result) error {
	size, err := sizeOf(result)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.changed.Broadcast()
	})
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.isFull() && !o.over && !o.closed && ctx.Err() == nil {
		o.changed.Wait()
	}
	switch {
	case o.over || o.closed:
		return ErrEnded
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	o.add(result, size)
	return nil
}

// end says how the run ended, unless its author has; that needs no room.
func (o *outbox) end(result *Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over && !o.closed {
		o.add(result, proto.Size(result))
	}
}

func (o *outbox) isFull() bool { return len(o.waiting) >= waitingResults || o.bytes >= frameBytes }

func (o *outbox) add(result *Result, size int) {
	o.sequence++
	// A result of its own: an author may send one that was sent before.
	result = &Result{
		RunId: o.runID, Sequence: o.sequence, Timestamp: result.Timestamp,
		MustUnderstand: result.MustUnderstand, Metadata: result.Metadata, Payload: result.Payload,
	}
	if result.Timestamp == nil {
		result.Timestamp = timestamppb.Now()
	}
	// Room for what was filled in, and for the field that holds it.
	size += len(o.runID) + 64
	o.waiting, o.sizes, o.bytes = append(o.waiting, result), append(o.sizes, size), o.bytes+size
	o.over = isTerminal(result)
	o.changed.Broadcast()
}

// hasMore waits until there are results; false when there will be no more.
func (o *outbox) hasMore() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) == 0 && !o.over && !o.closed {
		o.changed.Wait()
	}
	return len(o.waiting) > 0
}

// take returns those results that go into one frame, at most so many.
func (o *outbox) take(most int) []*Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	count, bytes := 0, 0
	for count < min(most, len(o.waiting)) && (count == 0 || bytes+o.sizes[count] <= frameBytes) {
		bytes += o.sizes[count]
		count++
	}
	taken := o.waiting[:count:count]
	o.waiting, o.sizes, o.bytes = o.waiting[count:], o.sizes[count:], o.bytes-bytes
	o.changed.Broadcast()
	return taken
}

// sizeOf checks that a result can be sent, so that its author hears it and not the connection.
func sizeOf(result *Result) (int, error) {
	if result.GetPayload() == nil {
		return 0, errors.New("a result needs a payload")
	}
	encoded, err := proto.Marshal(result)
	if err != nil {
		return 0, fmt.Errorf("a result cannot be sent: %w", err)
	}
	inline := len(result.GetArtifactCreated().GetInline().GetData())
	if own := len(encoded) - inline; own > resultBytes-512 || inline > resultBytes {
		return 0, fmt.Errorf("a result has %d bytes and an inline artifact of %d: at most %d each can be sent",
			own, inline, resultBytes)
	}
	return len(encoded), nil
}
