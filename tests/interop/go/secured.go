package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// way is what tests/support/ways_in.py writes.
type way struct {
	CA          string
	Mechanism   string
	User        string
	Password    string
	Certificate string
}

// wayIn gives the options of a client that authenticates as the environment says; none, if it says nothing.
func wayIn() []kgo.Opt {
	text, isThere := os.LookupEnv("PLOG_TESTS_WAY")
	if !isThere {
		return nil
	}
	var found way
	check(json.Unmarshal([]byte(text), &found))
	pem, err := os.ReadFile(found.CA)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if found.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(found.Certificate, found.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	switch found.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: found.User, Pass: found.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: found.User, Pass: found.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: found.User, Pass: found.Password}.AsSha512Mechanism()))
	}
	return options
}
