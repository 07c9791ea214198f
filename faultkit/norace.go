//go:build !race

package main

// raceDetector says that the kit was built with the race detector, so that its servers are too.
const raceDetector = false
