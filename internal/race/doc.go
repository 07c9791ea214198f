// Package race says whether the race detector is on. For tests only.
package race
