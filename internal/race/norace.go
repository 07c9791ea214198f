//go:build !race

package race

// Enabled says that the race detector is on. It makes allocations of its own, and has sync.Pool drop some of what it is
// given, so that counts of allocations are a little higher.
const Enabled = false
