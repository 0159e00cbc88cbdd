//go:build tools

// Package tools names what this module builds. It is a module of its own since the image stands for an older release:
// its version may differ from that of the other programs.
package tools

import _ "k8s.io/sample-apiserver"
