// The same in Go, whose runtime gives memory back by itself.
//
//	churn MEBIBYTES
package main

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"time"
)

const (
	smallest    = 64
	doublings   = 10
	mean        = 9821
	waveSeconds = 20
)

var random = rand.New(rand.NewSource(1))

// Of the package, since the compiler leaves out reads that nobody can see.
var sum byte

func block() []byte {
	size := smallest << random.Intn(doublings)
	bytes := make([]byte, size+random.Intn(size))
	for at := range bytes {
		bytes[at] = 1
	}
	return bytes
}

func main() {
	mebibytes := 512
	if len(os.Args) > 1 {
		mebibytes, _ = strconv.Atoi(os.Args[1])
	}
	blocks := make([][]byte, mebibytes<<20/mean)
	for at := range blocks {
		blocks[at] = block()
	}
	fmt.Println("ready")
	began, wave := time.Now(), 0
	for {
		before := time.Now()
		for reads := 0; reads < 2000; reads++ {
			if bytes := blocks[random.Intn(len(blocks))]; bytes != nil {
				sum += bytes[random.Intn(len(bytes))]
			}
		}
		if now := int(time.Since(began).Seconds()) / waveSeconds; now != wave {
			wave = now
			for at := range blocks {
				if wave%2 == 0 && blocks[at] == nil {
					blocks[at] = block()
				} else if wave%2 == 1 && random.Intn(2) == 0 {
					blocks[at] = nil
				}
			}
		}
		time.Sleep(4 * time.Since(before))
	}
}
