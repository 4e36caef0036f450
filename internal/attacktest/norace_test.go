//go:build !race

package attacktest

const raced = false
