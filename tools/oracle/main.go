// Command oracle answers questions about Kubernetes device allocation with the upstream code itself.
//
// It reads one JSON request per line on standard input and writes one JSON answer per line on
// standard output, in the same order. It decides nothing of its own: every answer is what the pinned
// upstream packages return. A request that cannot be served is answered with "failure"; the process
// lives on until its input ends.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
)

// answer is one reply; the loop adds the id of the request to it.
type answer map[string]any

// operations maps the "op" of a request to what serves it.
var operations = map[string]func(request []byte) (answer, error){
	"cel":        serveCEL,
	"quantity":   serveQuantity,
	"semver":     serveSemver,
	"allocate":   serveAllocate,
	"validate":   serveValidate,
	"predicates": servePredicates,
	"admit":      serveAdmit,
	"filters":    serveFilters,
	"bench":      serveBench,
}

// endlessExponent finds quantities whose exponent has four digits or more: upstream's parser may need
// hours for them. It sees bare numbers and quoted literals inside CEL expressions too.
var endlessExponent = regexp.MustCompile(
	`["'][+-]?[0-9.]*[eE][+-]?[0-9]{4,}\\?["']|[:,\[]\s*-?[0-9.]+[eE][+-]?[0-9]{4,}`)

const readBufferBytes = 1 << 20

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers every line of input. Answers are held back only while more requests are already here.
func serve(input io.Reader, output io.Writer) error {
	reader := bufio.NewReaderSize(input, readBufferBytes)
	writer := bufio.NewWriterSize(output, readBufferBytes)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, readErr := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(reply(line)); err != nil {
				return err
			}
		}
		if reader.Buffered() == 0 || readErr != nil {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// reply serves one request; whatever goes wrong, also a panic of upstream code, becomes a failure.
func reply(line []byte) (result answer) {
	var head struct {
		ID any    `json:"id"`
		Op string `json:"op"`
	}
	defer func() {
		if problem := recover(); problem != nil {
			result = answer{"failure": fmt.Sprintf("panic: %v", problem)}
		}
		result["id"] = head.ID
	}()
	if err := json.Unmarshal(line, &head); err != nil {
		return failure(err)
	}
	operation, known := operations[head.Op]
	if !known {
		return failure(fmt.Errorf("unknown op %q", head.Op))
	}
	if endlessExponent.Match(line) {
		return failure(fmt.Errorf("a quantity has an exponent of more than 3 digits: upstream would not return"))
	}
	served, err := operation(line)
	if err != nil {
		return failure(err)
	}
	return served
}

func failure(err error) answer {
	return answer{"failure": err.Error()}
}
