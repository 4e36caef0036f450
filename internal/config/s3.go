package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// S3 says how a bucket of blobs is reached. The variables are those that other
// programs which speak to S3 read too.
type S3 struct {
	Endpoint  string // URL; "" is Amazon's
	Region    string
	PathStyle string // "on", "off", or "" for what fits the endpoint
	CAFile    string

	AccessKey       string
	SecretKey       Secret
	SessionToken    Secret
	CredentialsFile string
	Profile         string
}

// bucketScheme begins the value of Blobs that names a bucket.
const bucketScheme = "s3://"

// Bucket returns the bucket in which blobs lie and what their names begin with,
// or "" when they lie elsewhere.
func (c *Config) Bucket() (bucket, prefix string) {
	path, ok := strings.CutPrefix(c.Blobs, bucketScheme)
	if !ok {
		return "", ""
	}
	bucket, prefix, _ = strings.Cut(path, "/")
	return bucket, strings.Trim(prefix, "/")
}

func s3Settings() []setting {
	own := []Role{Up, Manager}
	return []setting{
		{
			key: "s3_endpoint", env: "AWS_ENDPOINT_URL_S3", roles: own,
			help: "address of the S3 server that has the bucket of `blobs`, such as `https://s3.example`; empty is Amazon's",
			at:   text(func(c *Config) *string { return &c.S3.Endpoint }),
		},
		{
			key: "s3_region", env: "AWS_REGION", roles: own,
			help: "region of the bucket; empty asks Amazon, and is `us-east-1` elsewhere",
			at:   text(func(c *Config) *string { return &c.S3.Region }),
		},
		{
			key: "s3_path_style", env: "AUREA_S3_PATH_STYLE", roles: own, shown: "by the endpoint",
			help: "`on` puts the bucket into the path, as most private servers want it, `off` into the host name",
			at:   func(c *Config) value { return textValue{to: &c.S3.PathStyle, of: []string{"", "on", "off"}} },
		},
		{
			key: "s3_ca_file", env: "AWS_CA_BUNDLE", roles: own,
			help: "file of certificates that are trusted for the S3 server beside those of the system",
			at:   text(func(c *Config) *string { return &c.S3.CAFile }),
		},
		{
			key: "s3_access_key", env: "AWS_ACCESS_KEY_ID", roles: own,
			help: "access key for the bucket; empty takes the credentials file, and else what the machine may do",
			at:   text(func(c *Config) *string { return &c.S3.AccessKey }),
		},
		{
			key: "s3_secret_key", env: "AWS_SECRET_ACCESS_KEY", roles: own,
			help: "secret of the access key",
			at:   func(c *Config) value { return handedValue{&c.S3.SecretKey} },
		},
		{
			key: "s3_session_token", env: "AWS_SESSION_TOKEN", roles: own,
			help: "token of an access key that is lent for a time",
			at:   func(c *Config) value { return handedValue{&c.S3.SessionToken} },
		},
		{
			key: "s3_credentials_file", env: "AWS_SHARED_CREDENTIALS_FILE", roles: own, shown: "`~/.aws/credentials`",
			help: "file of profiles with access keys; the manager's user must be able to read it",
			at:   text(func(c *Config) *string { return &c.S3.CredentialsFile }),
		},
		{
			key: "s3_profile", env: "AWS_PROFILE", roles: own, shown: "`default`",
			help: "profile of the credentials file",
			at:   text(func(c *Config) *string { return &c.S3.Profile }),
		},
	}
}

// blobsValue is a word, or the address of a bucket.
type blobsValue struct{ to *string }

func (v blobsValue) String() string { return *v.to }

func (v blobsValue) Set(text string) error {
	if strings.HasPrefix(strings.TrimSpace(text), bucketScheme) {
		return textValue{to: v.to}.Set(text)
	}
	return textValue{to: v.to, of: []string{"", LocalBlobs, DatabaseBlobs, bucketScheme + "BUCKET"}}.Set(text)
}

// handedValue is a secret that the supervisor hands to the role that reads it,
// and shows to nobody.
type handedValue struct{ to *Secret }

func (v handedValue) Set(text string) error { return v.to.Set(text) }

func (v handedValue) String() string { return v.to.String() }

// checkS3 checks what names a bucket, when one is named.
func (c *Config) checkS3() error {
	bucket, prefix := c.Bucket()
	if !strings.HasPrefix(c.Blobs, bucketScheme) {
		return nil
	}
	switch {
	case !bucketName().MatchString(bucket):
		return bad("blobs", "%q is no name of a bucket: 3 to 63 lower-case letters, digits, dots and hyphens", clip(bucket))
	case len(prefix) > 512 || !prefixName().MatchString(prefix):
		return bad("blobs", "%q cannot begin the names of blobs: letters, digits, and -_./ only", clip(prefix))
	case (c.S3.AccessKey == "") != (c.S3.SecretKey == ""):
		return bad("s3_secret_key", "this and AWS_ACCESS_KEY_ID belong together; set both or none")
	case c.S3.CAFile != "" && !filepath.IsAbs(c.S3.CAFile):
		return bad("s3_ca_file", "%q must be an absolute path", c.S3.CAFile)
	case c.S3.CredentialsFile != "" && !filepath.IsAbs(c.S3.CredentialsFile):
		return bad("s3_credentials_file", "%q must be an absolute path", c.S3.CredentialsFile)
	}
	if c.S3.Endpoint == "" {
		return nil
	}
	if err := checkURL("s3_endpoint", c.S3.Endpoint); err != nil {
		return err
	}
	if u, _ := url.Parse(c.S3.Endpoint); strings.Trim(u.Path, "/") != "" {
		return bad("s3_endpoint", "%q must have no path", c.S3.Endpoint)
	}
	return nil
}

func bucketName() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`) }

// prefixName allows what is the same to every server; a name with dots alone
// would be another on some.
func prefixName() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?$`)
}
