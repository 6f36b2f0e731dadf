package redistest

// The methods below report with Errorf, as a test may call them from a
// goroutine that must not end the test.

// Stop halts the server with SIGSTOP: it keeps its connections and its memory
// but answers nothing until [Server.Continue]. Like the other methods that hurt
// a server it may be called from any goroutine, and only on a server this
// package started.
func (s *Server) Stop() {
	s.t.Helper()
	if s.mine() {
		s.report("stop", s.process.halt())
	}
}

// Continue lets a stopped server go on, with SIGCONT.
func (s *Server) Continue() {
	s.t.Helper()
	if s.mine() {
		s.report("continue", s.process.signal(sigCont))
	}
}

// Kill ends the server with SIGKILL, stopped or not, and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	if s.mine() {
		s.process.kill()
	}
}

// Restart kills the server if it still runs, starts it again on the same
// address, and waits until it answers. It comes back without data and scripts,
// unless the arguments given to [Start] make it persist.
func (s *Server) Restart() {
	s.t.Helper()
	if s.mine() {
		s.report("restart", s.process.restart())
	}
}

func (s *Server) mine() bool {
	s.t.Helper()
	if s.process == nil {
		s.t.Errorf("%s is no process started by this test", s.Name)
	}
	return s.process != nil
}

func (s *Server) report(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s %s: %v", what, s.Name, err)
	}
}
