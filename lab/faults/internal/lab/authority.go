package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the certificates of a server: one that its clients trust, and one that they do not.
type authority struct {
	dir     string
	trusted *x509.CertPool
}

func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir, trusted: x509.NewCertPool()}
	for _, name := range []string{"right", "wrong"} {
		cert, err := a.make(name)
		if err != nil {
			return nil, err
		}
		if name == "right" {
			a.trusted.AddCert(cert)
		}
	}
	return a, nil
}

// make writes a certificate that signs itself, and its key.
func (a *authority) make(name string) (*x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return x509.ParseCertificate(der)
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) args() []string {
	return []string{
		"--tls-cert-file", a.file("right.crt"), "--tls-key-file", a.file("right.key"),
		"--tls-ca-cert-file", a.file("right.crt"), "--tls-auth-clients", "no",
	}
}

// client greets a server whose certificate must be the right one.
func (a *authority) client(ctx context.Context, conn net.Conn) (net.Conn, error) {
	return handshake(ctx, conn, &tls.Config{RootCAs: a.trusted, ServerName: "127.0.0.1"})
}

// anyClient greets a server whatever its certificate is.
func (a *authority) anyClient(ctx context.Context, conn net.Conn) (net.Conn, error) {
	return handshake(ctx, conn, &tls.Config{InsecureSkipVerify: true})
}

func handshake(ctx context.Context, conn net.Conn, cfg *tls.Config) (net.Conn, error) {
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// SetCertificate gives the server the certificate that clients trust, or another.
func (l *Lab) SetCertificate(right bool) error {
	name := "wrong"
	if right {
		name = "right"
	}
	return l.Primary.Run(fmt.Sprintf("CONFIG SET tls-cert-file %s tls-key-file %s",
		l.trust.file(name+".crt"), l.trust.file(name+".key")))
}
