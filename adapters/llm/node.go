package llm

// role tells a visitor what a value at a path means. Requests and responses each have their own
// roles.
type role uint8

// node is one place in a JSON document that a visitor wants to know about. The nodes of a table are
// built once and never change.
type node struct {
	key   string
	role  role
	watch bool    // the visitor is told each key of the object
	kids  []*node // by key
	each  *node   // every element of an array; nil: rest
	rest  *node   // values under other keys; nil: nobody asks. It is its own rest.
}

// at returns the child for a key, or nil.
func (n *node) at(key []byte) *node {
	for _, k := range n.kids {
		if k.key == string(key) {
			return k
		}
	}
	return n.rest
}

// element returns the child for the elements of an array, or nil.
func (n *node) element() *node {
	if n.each != nil {
		return n.each
	}
	return n.rest
}

// object returns a node with children by key.
func object(key string, r role, kids ...*node) *node { return &node{key: key, role: r, kids: kids} }

// array returns a node of which every element is each.
func array(key string, each *node) *node { return &node{key: key, role: each.role, each: each} }

// visitor is told what a scanner finds at the nodes of its table.
type visitor interface {
	// key is called for each key of an object whose node has watch. The key is s.text().
	key(s *scanner, n *node)
	// begin is called when an object or array begins. kind is '{' or '['.
	begin(s *scanner, n *node, kind byte)
	// end is called when that object or array ends.
	end(s *scanner, n *node)
	// scalar is called when any other value ends. kind is '"', '0' for a number, 't', 'f' or 'n'.
	scalar(s *scanner, n *node, kind byte)
}
