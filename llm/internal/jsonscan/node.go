package jsonscan

// Role tells a visitor what the value at a path means. Each table has its own roles.
type Role uint8

// Node is one place in a JSON document that a visitor wants to know about. A table of nodes is
// built once and never changes.
type Node struct {
	Key   string
	Role  Role
	Name  string  // for the visitor, such as the name of a unit
	Order int     // for the visitor, among the nodes of the same role
	Watch bool    // Visitor.Key is called for each key of the object
	Kids  []*Node // the values under their keys
	Each  *Node   // the elements of an array; nil: Rest
	Rest  *Node   // the values under other keys; nil: no visitor asks. It is its own Rest.
}

// at returns the child for a key, or nil.
func (n *Node) at(key []byte) *Node {
	for _, k := range n.Kids {
		if k.Key == string(key) {
			return k
		}
	}
	return n.Rest
}

// element returns the child for the elements of an array, or nil, also of nil.
func (n *Node) element() *Node {
	switch {
	case n == nil:
		return nil
	case n.Each != nil:
		return n.Each
	}
	return n.Rest
}
