package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/credentials"
	"github.com/aws/aws-sdk-go/aws/session"
	"github.com/aws/aws-sdk-go/service/firehose"
)

// fake is `noroshi bench events --fake`, controlled by lines on its standard input.
type fake struct {
	process *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	client  *firehose.Firehose
	stream  string
}

func startFake(noroshi string, answer time.Duration, threads int) (*fake, error) {
	process := exec.Command(noroshi, "bench", "events", "--fake", "--answer", answer.String(),
		"--threads", strconv.Itoa(threads))
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	f := &fake{process: process, input: input, output: bufio.NewScanner(output)}
	values, err := f.read(5)
	if err != nil {
		return nil, err
	}
	f.stream = values["stream"]
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// The default keeps two idle connections; the other workers would reconnect for each call.
	transport.MaxIdleConnsPerHost = parallel
	open, err := session.NewSession(&aws.Config{
		Endpoint:    aws.String(values["endpoint"]),
		Region:      aws.String(values["AWS_REGION"]),
		Credentials: credentials.NewStaticCredentials(values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"], ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
	if err != nil {
		return nil, err
	}
	f.client = firehose.New(open)
	return f, nil
}

// read reads count lines of `name<TAB>value`.
func (f *fake) read(count int) (map[string]string, error) {
	values := make(map[string]string)
	for range count {
		if !f.output.Scan() {
			return nil, fmt.Errorf("the fake of Firehose ended: %v", f.output.Err())
		}
		name, value, _ := strings.Cut(f.output.Text(), "\t")
		values[name] = value
	}
	return values, nil
}

func (f *fake) send(line string) error {
	_, err := fmt.Fprintln(f.input, line)
	return err
}

// fate is what happened to the events below a number.
type fate struct {
	lost, doubled float64
	// Arrived for the first time after a later event of the same goroutine.
	late float64
	// Seconds from the first arrival to the last one.
	lasted float64
}

// totals queries the fate of the events below a number; it fails if a call broke a rule.
func (f *fake) totals(number int) (fate, error) {
	var found fate
	if err := f.send("told " + strconv.Itoa(number)); err != nil {
		return found, err
	}
	values, err := f.read(4)
	if err != nil {
		return found, err
	}
	for name, to := range map[string]*float64{
		"lost": &found.lost, "doubled": &found.doubled, "late": &found.late, "lasted": &found.lasted,
	} {
		if *to, err = strconv.ParseFloat(values[name], 64); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (f *fake) end() {
	f.input.Close()
	f.process.Wait()
}
