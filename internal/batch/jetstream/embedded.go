package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

// Embed starts a server in this process, with its files in a folder and without a port. Nobody
// else may use the folder. Hints that an earlier process was working on are given out at once.
func Embed(ctx context.Context, dir string, o Options) (*Conn, error) {
	c := o.conn("embedded")
	s, err := server.NewServer(&server.Options{
		ServerName: "foretoken", DontListen: true, NoSigs: true, // no port, and signals are not its business
		// By default it would sync every two minutes. A hint that a loss of power takes would be missed and
		// queued again, but one that is there costs 2 ms at most, and a line takes far longer.
		JetStream: true, StoreDir: dir, SyncAlways: true,
		JetStreamMaxStore: 2 * c.maxBytes, JetStreamMaxMemory: 64 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("queue in %s: %w", dir, err)
	}
	s.SetLoggerV2(serverLog{c.log.With("part", "nats-server")}, false, false, false)
	c.embedded = s
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("queue in %s: it does not start; remove the folder: no data is lost, missing lines are queued again", dir)
	}
	nc, err := nats.Connect("", append(c.options(), nats.InProcessServer(s))...)
	if err == nil {
		err = c.use(ctx, nc)
	}
	if err == nil {
		err = c.release(ctx)
	}
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("queue in %s: %w; if this persists, remove the folder: no data is lost, missing lines are queued again", dir, err)
	}
	return c, nil
}

// startTimeout is how long a server may take to read its files.
const startTimeout = time.Minute

// release hands in what an earlier process had fetched and not finished: that process is dead, or
// this one could not have the folder. How often a hint was delivered is still known, so one that
// ends the process each time runs out of attempts.
func (c *Conn) release(ctx context.Context) error {
	stream, err := c.work(ctx)
	if err != nil {
		return err
	}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		if info.NumAckPending == 0 {
			continue
		}
		for seq := info.AckFloor.Stream + 1; seq <= info.Delivered.Stream; seq++ {
			_, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, js.ErrMsgNotFound) {
				continue // finished
			}
			if err != nil {
				return err
			}
			// What a message's own Nak would send: which message, and of which delivery, the last one at most.
			reply := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.0.0", workStream, info.Name, seq, info.Delivered.Consumer)
			if err := c.nc.Publish(reply, []byte("-NAK")); err != nil {
				return err
			}
		}
	}
	if err := consumers.Err(); err != nil {
		return err
	}
	return c.nc.FlushTimeout(apiTimeout)
}

// serverLog is the log of the server, in ours. What it tells of itself at the start is of
// interest to those who look for a fault.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l serverLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l serverLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l serverLog) Fatalf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l serverLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l serverLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
