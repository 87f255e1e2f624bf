package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	runmesh "github.com/runmesh/runmesh/sdk/go"
)

const (
	// Larger messages are left to the host, which completes them from the pieces.
	messageBytes = 1_000_000
	// Longer words are cut, so that a piece stays small.
	wordBytes = 4096
)

type echoConfig struct {
	DelaySeconds    float64 `json:"delay_seconds"`
	IntervalSeconds float64 `json:"interval_seconds"`
	Repeat          int     `json:"repeat"`
	Size            int     `json:"size"`
	Message         bool    `json:"message"`
	Failure         string  `json:"failure"`
}

// echo streams back what it is told.
func echo(ctx context.Context, run *runmesh.Run) error {
	config := echoConfig{Size: 6, Message: true}
	if err := run.Config(&config); err != nil {
		return err
	}
	if err := sleep(ctx, config.DelaySeconds); err != nil {
		return err
	}
	if config.Failure == "error" {
		if err := run.Send(ctx, runmesh.Delta("Before the fault. ")); err != nil {
			return err
		}
		return &runmesh.Failure{Code: "echo.asked", Message: "the configuration asks for a failure", Retryable: true}
	}
	answer := heard(run)
	spoken, bytes := pieces(answer), len(answer)
	if config.Repeat > 0 {
		spoken, bytes = repeated(strings.Repeat("x", config.Size), config.Repeat), config.Repeat*config.Size
	}
	for piece := range spoken {
		if err := run.Send(ctx, runmesh.Delta(piece)); err != nil {
			return err
		}
		if config.IntervalSeconds > 0 {
			if err := sleep(ctx, config.IntervalSeconds); err != nil {
				return err
			}
		}
	}
	switch {
	case bytes == 0:
		return run.Send(ctx, runmesh.Completed("silent"))
	case config.Message && bytes <= messageBytes:
		if config.Repeat > 0 {
			answer = strings.Repeat("x", bytes)
		}
		return run.Send(ctx, runmesh.Reply(answer))
	}
	return nil
}

// heard is what was said, or for events without text what happened.
func heard(run *runmesh.Run) string {
	if run.GetInput() != nil && run.GetInput().Text != nil {
		return run.Text()
	}
	return fmt.Sprintf("Event %s, without text.", run.GetEvent().GetType())
}

// pieces cuts a text into its words, each with the space behind it.
func pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, afterSpace := 0, false
		for index, char := range text {
			isSpace := unicode.IsSpace(char)
			if index > start && (afterSpace && !isSpace || index-start >= wordBytes && utf8.RuneStart(text[index])) {
				if !yield(text[start:index]) {
					return
				}
				start = index
			}
			afterSpace = isSpace
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

func repeated(piece string, count int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for range count {
			if !yield(piece) {
				return
			}
		}
	}
}

// sleep waits, unless the run is stopped meanwhile.
func sleep(ctx context.Context, seconds float64) error {
	if seconds <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
