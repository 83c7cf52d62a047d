// Tlog holds our log against the Go project's own packages for transparency logs and signed notes.
//
//	tlog answer           reads questions, one a line, and writes an answer to each (tlog/tests/questions)
//	tlog read LOG VKEY    reads a whole log, a folder or a URL, and checks everything in it
//
// Built with the packages of the system alone: GO111MODULE=off GOPATH=/usr/share/gocode go build.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "answer":
		err = answerAll(os.Stdin, os.Stdout)
	case len(os.Args) == 4 && os.Args[1] == "read":
		err = readLog(os.Args[2], os.Args[3])
	default:
		err = errors.New("usage: tlog answer | tlog read LOG VKEY")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tlog:", err)
		os.Exit(1)
	}
}

// ---- Questions ----

var errNo = errors.New("refused")

func answerAll(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 4<<20)
	writer := bufio.NewWriter(out)
	for lines.Scan() {
		answer, err := answer(strings.Split(lines.Text(), " "))
		if err != nil {
			answer = "no"
		}
		fmt.Fprintln(writer, answer)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return writer.Flush()
}

func answer(question []string) (string, error) {
	args := question[1:]
	switch question[0] {
	case "leaf":
		return tlog.RecordHash(unhex(args[0])).String(), nil
	case "node":
		hashes := hashes(args)
		return tlog.NodeHash(hashes[0], hashes[1]).String(), nil
	case "position":
		return fmt.Sprint(tlog.StoredHashIndex(int(number(args[0])), number(args[1]))), nil
	case "split":
		level, index := tlog.SplitStoredHashIndex(number(args[0]))
		return fmt.Sprint(level, index), nil
	case "count":
		return fmt.Sprint(tlog.StoredHashCount(number(args[0]))), nil
	case "root":
		if number(args[0]) == 0 {
			// This version of the package has no word for the empty tree.
			return "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", nil
		}
		root, err := tlog.TreeHash(number(args[0]), oddLeaf(number(args[1])))
		return root.String(), err
	case "inclusion":
		proof, err := tlog.ProveRecord(number(args[1]), number(args[0]), oddLeaf(number(args[2])))
		return listed(proof), err
	case "consistency":
		proof, err := tlog.ProveTree(number(args[1]), number(args[0]), oddLeaf(number(args[2])))
		return listed(proof), err
	case "check-inclusion":
		hashes := hashes(args[2:])
		return "yes", tlog.CheckRecord(hashes[2:], number(args[1]), hashes[1], number(args[0]), hashes[0])
	case "check-consistency":
		hashes := hashes(args[2:])
		return "yes", tlog.CheckTree(hashes[2:], number(args[1]), hashes[1], number(args[0]), hashes[0])
	case "path":
		tile := tlog.Tile{H: tileHeight, N: number(args[1]), W: int(number(args[2]))}
		if args[0] == "entries" {
			tile.L = -1
		} else {
			tile.L = int(number(args[0]))
		}
		return pathOf(tile), nil
	case "tile":
		path := strings.Replace(string(unhex(args[0])), "tile/", "tile/8/", 1)
		tile, err := tlog.ParseTilePath(strings.Replace(path, "/entries/", "/data/", 1))
		if tile.L == -1 {
			return fmt.Sprint("entries ", tile.N, " ", tile.W), err
		}
		return fmt.Sprint(tile.L, tile.N, tile.W), err
	case "new-tiles":
		var paths []string
		for _, tile := range newTiles(number(args[0]), number(args[1])) {
			paths = append(paths, pathOf(tile))
		}
		return strings.Join(paths, " "), nil
	case "key":
		key, err := note.NewVerifier(string(unhex(args[0])))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%08x %x", key.KeyHash(), key.Name()), nil
	case "note":
		var keys []note.Verifier
		for _, vkey := range args[1:] {
			key, err := note.NewVerifier(string(unhex(vkey)))
			if err != nil {
				return "", err
			}
			keys = append(keys, key)
		}
		opened, err := note.Open(unhex(args[0]), note.VerifierList(keys...))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%x", opened.Text), nil
	case "checkpoint":
		text := unhex(args[0])
		tree, err := tlog.ParseTree(text)
		origin := strings.SplitN(string(text), "\n", 2)[0]
		return fmt.Sprintf("%x %d %v", origin, tree.N, tree.Hash), err
	}
	panic("unknown question " + question[0])
}

// oddLeaf is a tree whose leaves are alike but for the one at this place.
type oddLeaf int64

func (odd oddLeaf) ReadHashes(positions []int64) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, position := range positions {
		level, index := tlog.SplitStoredHashIndex(position)
		plain, special := tlog.RecordHash([]byte("plain")), tlog.RecordHash([]byte("odd"))
		for at := 0; at < level; at++ {
			if int64(odd)>>at&1 == 1 {
				special = tlog.NodeHash(plain, special)
			} else {
				special = tlog.NodeHash(special, plain)
			}
			plain = tlog.NodeHash(plain, plain)
		}
		if int64(odd)>>level == index {
			found = append(found, special)
		} else {
			found = append(found, plain)
		}
	}
	return found, nil
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func unhex(text string) []byte {
	if text == "-" {
		return nil
	}
	bytes, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return bytes
}

func hashes(texts []string) []tlog.Hash {
	var found []tlog.Hash
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			panic(err)
		}
		found = append(found, hash)
	}
	return found
}

func listed(hashes []tlog.Hash) string {
	if len(hashes) == 0 {
		return "none"
	}
	var texts []string
	for _, hash := range hashes {
		texts = append(texts, hash.String())
	}
	return strings.Join(texts, " ")
}

// ---- A whole log ----

// pathOf is a tile's path as C2SP has it: no height, and "entries" for "data".
func pathOf(tile tlog.Tile) string {
	path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
	return strings.Replace(path, "/data/", "/entries/", 1)
}

// newTiles are the tiles of hashes that a tree has and an older one has not. Older versions of the package list every
// width of a partial tile from the older tree's on; this log writes, and keeps, the widest.
func newTiles(old, size int64) (tiles []tlog.Tile) {
	for _, tile := range tlog.NewTiles(tileHeight, old, size) {
		level := uint(tile.L * tileHeight)
		if tile.N<<tileHeight+int64(tile.W) <= old>>level {
			continue
		}
		if last := len(tiles) - 1; last >= 0 && tiles[last].L == tile.L && tiles[last].N == tile.N {
			tiles[last] = tile
		} else {
			tiles = append(tiles, tile)
		}
	}
	return tiles
}

var client = http.Client{Timeout: 20 * time.Second}

// fetch reads a file of the log, from a folder or over HTTP.
func fetch(log, path string) ([]byte, error) {
	if !strings.HasPrefix(log, "http://") {
		return os.ReadFile(filepath.Join(log, path))
	}
	answer, err := client.Get(log + "/" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return nil, os.ErrNotExist
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", path, answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, 64<<20))
}

// openTree checks a checkpoint's signature and reads its three lines.
func openTree(message []byte, key note.Verifier) (tree tlog.Tree, err error) {
	opened, err := note.Open(message, note.VerifierList(key))
	if err != nil {
		return tree, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != key.Name() {
		return tree, fmt.Errorf("checkpoint %q is not one of %s", opened.Text, key.Name())
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return tree, err
	}
	tree.Hash, err = tlog.ParseHash(lines[2])
	return tree, err
}

// stored is a whole tree in memory, in the order of its stored hashes.
type stored []tlog.Hash

func (hashes stored) ReadHashes(positions []int64) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, position := range positions {
		found = append(found, hashes[position])
	}
	return found, nil
}

// tiles reads the log's tiles for the package's own reader.
type tiles struct{ log string }

func (tiles) Height() int                         { return tileHeight }
func (tiles) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (source tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		data, err := fetch(source.log, pathOf(tile))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

func readLog(log, vkey string) error {
	key, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	message, err := fetch(log, "checkpoint")
	if err != nil {
		return err
	}
	tree, err := openTree(message, key)
	if err != nil {
		return err
	}
	hashes, err := readEntries(log, tree.N)
	if err != nil {
		return err
	}
	if root, err := tlog.TreeHash(tree.N, hashes); err != nil || root != tree.Hash {
		return fmt.Errorf("the entries hash to %v, signed is %v (%v)", root, tree.Hash, err)
	}
	// The package's own reader leaves some tiles unchecked, so each is compared.
	all := newTiles(0, tree.N)
	for _, tile := range all {
		data, err := fetch(log, pathOf(tile))
		if err != nil {
			return err
		}
		expected, err := tlog.ReadTileData(tile, hashes)
		if err != nil || string(data) != string(expected) {
			return fmt.Errorf("%s is not what the entries hash to (%v)", pathOf(tile), err)
		}
	}
	inclusions, consistencies, err := checkProofs(log, tree, hashes)
	if err != nil {
		return err
	}
	served := 0
	if strings.HasPrefix(log, "http://") {
		if served, err = checkServed(log, tree, key, hashes); err != nil {
			return err
		}
	}
	fmt.Printf("size %d root %v: %d tiles, %d inclusion and %d consistency proofs, %d older checkpoints\n",
		tree.N, tree.Hash, len(all), inclusions, consistencies, served)
	return nil
}

// readEntries reads every entry bundle and hashes every entry.
func readEntries(log string, size int64) (hashes stored, err error) {
	for index := int64(0); index<<tileHeight < size; index++ {
		width := size - index<<tileHeight
		if width > 1<<tileHeight {
			width = 1 << tileHeight
		}
		path := pathOf(tlog.Tile{H: tileHeight, L: -1, N: index, W: int(width)})
		bundle, err := fetch(log, path)
		if err != nil {
			return nil, err
		}
		for at := int64(0); at < width; at++ {
			if len(bundle) < 2 || len(bundle)-2 < int(binary.BigEndian.Uint16(bundle)) {
				return nil, fmt.Errorf("%s ends in entry %d", path, at)
			}
			end := 2 + int(binary.BigEndian.Uint16(bundle))
			grown, err := tlog.StoredHashes(index<<tileHeight+at, bundle[2:end], hashes)
			if err != nil {
				return nil, err
			}
			hashes = append(hashes, grown...)
			bundle = bundle[end:]
		}
		if len(bundle) > 0 {
			return nil, fmt.Errorf("%s goes on behind its last entry", path)
		}
	}
	return hashes, nil
}

// places are all numbers from 0 to last, or those near its ends and its powers of two.
func places(last int64) (found []int64) {
	for place := int64(0); place <= last; place++ {
		near := place&(place-1) == 0 || place&(place+1) == 0 || place%256 < 2 || place%256 == 255
		if last <= 140 || near || place < 5 || place+5 > last {
			found = append(found, place)
		}
	}
	return found
}

// checkProofs makes proofs from the log's tiles and checks them against the entries.
func checkProofs(log string, tree tlog.Tree, hashes stored) (inclusions, consistencies int, err error) {
	reader := tlog.TileHashReader(tree, tiles{log})
	for _, index := range places(tree.N - 1) {
		proof, err := tlog.ProveRecord(tree.N, index, reader)
		if err != nil {
			return 0, 0, err
		}
		leaf := hashes[tlog.StoredHashIndex(0, index)]
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, index, leaf); err != nil {
			return 0, 0, fmt.Errorf("entry %d: %v", index, err)
		}
		inclusions++
	}
	for _, size := range places(tree.N)[1:] {
		root, err := tlog.TreeHash(size, hashes)
		if err != nil {
			return 0, 0, err
		}
		proof, err := tlog.ProveTree(tree.N, size, reader)
		if err != nil {
			return 0, 0, err
		}
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, size, root); err != nil {
			return 0, 0, fmt.Errorf("tree of %d: %v", size, err)
		}
		consistencies++
	}
	return inclusions, consistencies, nil
}

// checkServed checks what our server gives beyond tiles: older checkpoints, and proofs it makes itself.
func checkServed(log string, tree tlog.Tree, key note.Verifier, hashes stored) (served int, err error) {
	for _, size := range places(tree.N)[1:] {
		message, err := fetch(log, fmt.Sprint("checkpoint/", size))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		older, err := openTree(message, key)
		if err != nil {
			return 0, err
		}
		if root, err := tlog.TreeHash(size, hashes); err != nil || older.N != size || root != older.Hash {
			return 0, fmt.Errorf("checkpoint/%d is of size %d and root %v, the entries have %v", size, older.N, older.Hash, root)
		}
		text, err := fetch(log, fmt.Sprintf("consistency/%d/%d", size, tree.N))
		if err != nil {
			return 0, err
		}
		proof := hashLines(strings.Split(string(text), "\n"))
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, size, older.Hash); err != nil {
			return 0, fmt.Errorf("consistency/%d/%d: %v", size, tree.N, err)
		}
		text, err = fetch(log, fmt.Sprintf("proof/%d.tlog-proof?size=%d", size-1, size))
		if err != nil {
			return 0, err
		}
		lines, checkpoint, _ := strings.Cut(string(text), "\n\n")
		if proven, err := openTree([]byte(checkpoint), key); err != nil || proven != older {
			return 0, fmt.Errorf("proof/%d.tlog-proof stands on %v (%v)", size-1, proven, err)
		}
		head := strings.Split(lines, "\n")
		if head[0] != "c2sp.org/tlog-proof@v1" || head[1] != fmt.Sprint("index ", size-1) {
			return 0, fmt.Errorf("proof/%d.tlog-proof begins with %q", size-1, head[:2])
		}
		leaf := hashes[tlog.StoredHashIndex(0, size-1)]
		if err := tlog.CheckRecord(hashLines(head[2:]), size, older.Hash, size-1, leaf); err != nil {
			return 0, fmt.Errorf("proof/%d.tlog-proof: %v", size-1, err)
		}
		served++
	}
	return served, nil
}

func hashLines(lines []string) []tlog.Hash {
	var texts []string
	for _, line := range lines {
		if line != "" {
			texts = append(texts, line)
		}
	}
	return hashes(texts)
}
