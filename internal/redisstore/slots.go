package redisstore

import (
	"slices"

	"github.com/headgate/headgate/internal/request"
)

// Split implements request.Store: on a cluster one script decides only keys of one hash slot.
func (s *Store) Split(charges []*request.Charge) [][]*request.Charge {
	if !s.Cluster || oneSlot(charges, charges[0].Outermost()) {
		return nil
	}
	var parts [][]*request.Charge
	for _, c := range charges {
		i := slices.IndexFunc(parts, func(p []*request.Charge) bool {
			return p[0].Outermost() == c.Outermost()
		})
		if i < 0 {
			i = len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], c)
	}
	return parts
}

// TakesSlot implements request.Store.
func (s *Store) TakesSlot(charges []*request.Charge, outermost string) bool {
	return !s.Cluster || oneSlot(charges, outermost)
}

func oneSlot(charges []*request.Charge, outermost string) bool {
	for _, c := range charges {
		if c.Outermost() != outermost {
			return false
		}
	}
	return true
}
