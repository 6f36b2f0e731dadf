package redistest

// The methods below report with Errorf, because a test may call them from a
// goroutine that must not end the test.

// Stop halts the server with SIGSTOP: it keeps its connections and its memory,
// but answers nothing until [Server.Continue]. Stop, Continue, Kill and Restart
// may be called from any goroutine, and only on a server that this package
// started.
func (s *Server) Stop() {
	s.t.Helper()
	if s.owned() {
		s.report("stop", s.process.halt())
	}
}

// Continue resumes a stopped server with SIGCONT.
func (s *Server) Continue() {
	s.t.Helper()
	if s.owned() {
		s.report("continue", s.process.signal(sigCont))
	}
}

// Kill ends the server with SIGKILL, stopped or not, and waits until the process
// has exited.
func (s *Server) Kill() {
	s.t.Helper()
	if s.owned() {
		s.process.kill()
	}
}

// Restart kills the server if it still runs, starts it again on the same
// address, and waits until it answers. Data and scripts are lost, unless the
// arguments given to [Start] make the server persist them.
func (s *Server) Restart() {
	s.t.Helper()
	if s.owned() {
		s.report("restart", s.process.restart())
	}
}

func (s *Server) owned() bool {
	s.t.Helper()
	if s.process == nil {
		s.t.Errorf("%s was not started by this test", s.Name)
	}
	return s.process != nil
}

func (s *Server) report(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s %s: %v", what, s.Name, err)
	}
}
