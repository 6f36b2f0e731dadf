// Package browser tests the page of package admin in a real Chromium. It is a module of its own,
// so that users of the page do not download a driver of browsers.
package browser
