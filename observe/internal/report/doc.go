// Package report turns the events of core, and of the packages beside it, into values of series. The
// exporters of metrics only carry these on, so that they cannot disagree.
package report
