package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// tlsFiles are PEM files; without an authority there is no TLS.
type tlsFiles struct{ ca, cert, key string }

// credentials are those of the calls to PD and those of the service. Clients need a certificate of the authority, as
// TiKV asks for one as soon as it has an authority.
func (f tlsFiles) credentials() (toPD, serve credentials.TransportCredentials, err error) {
	if f.ca == "" {
		return insecure.NewCredentials(), insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("no certificate in %s", f.ca)
	}
	own, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, nil, err
	}
	toPD = credentials.NewTLS(&tls.Config{RootCAs: authority, Certificates: []tls.Certificate{own}})
	serve = credentials.NewTLS(&tls.Config{
		ClientCAs:    authority,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{own},
	})
	return toPD, serve, nil
}
