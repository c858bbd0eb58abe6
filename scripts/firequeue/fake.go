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

// fake is `noroshi bench events --fake`, which is told what to do line by line.
type fake struct {
	process *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	client  *firehose.Firehose
	stream  string
}

func startFake(noroshi string, answer time.Duration) (*fake, error) {
	process := exec.Command(noroshi, "bench", "events", "--fake", "--answer", answer.String())
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
	said, err := f.read(5)
	if err != nil {
		return nil, err
	}
	f.stream = said["stream"]
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Two are kept by default: the others would connect anew each time.
	transport.MaxIdleConnsPerHost = parallel
	open, err := session.NewSession(&aws.Config{
		Endpoint:    aws.String(said["endpoint"]),
		Region:      aws.String(said["AWS_REGION"]),
		Credentials: credentials.NewStaticCredentials(said["AWS_ACCESS_KEY_ID"], said["AWS_SECRET_ACCESS_KEY"], ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
	if err != nil {
		return nil, err
	}
	f.client = firehose.New(open)
	return f, nil
}

// read reads so many lines of `name<TAB>value`.
func (f *fake) read(count int) (map[string]string, error) {
	said := make(map[string]string)
	for range count {
		if !f.output.Scan() {
			return nil, fmt.Errorf("the fake of Firehose ended: %v", f.output.Err())
		}
		name, value, _ := strings.Cut(f.output.Text(), "\t")
		said[name] = value
	}
	return said, nil
}

func (f *fake) tell(line string) error {
	_, err := fmt.Fprintln(f.input, line)
	return err
}

// told asks what became of the events below a number, and whether no call broke a rule.
func (f *fake) told(number int) (lost, doubled float64, err error) {
	if err := f.tell("told " + strconv.Itoa(number)); err != nil {
		return 0, 0, err
	}
	said, err := f.read(2)
	if err != nil {
		return 0, 0, err
	}
	if lost, err = strconv.ParseFloat(said["lost"], 64); err != nil {
		return 0, 0, err
	}
	doubled, err = strconv.ParseFloat(said["doubled"], 64)
	return lost, doubled, err
}

func (f *fake) end() {
	f.input.Close()
	f.process.Wait()
}
