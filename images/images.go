// Package images holds the Dockerfiles that come along, embedded: one folder
// each, named as users name it. Whoever builds images gets them handed in.
package images

import "embed"

// files are the folders.
//
//go:embed sandbox node-expo
var files embed.FS

// Files are the folders by name, each with a Dockerfile in it.
func Files() embed.FS { return files }
