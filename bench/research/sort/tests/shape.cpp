// Prints what std::make_heap with std::sort_heap and std::sort compare: how often, and a digest (FNV-1a) of which numbers in which order.
// The figures of libstdc++ stand in src/algorithm.rs, whose tests compare those of our own sorts.
//
//   g++ -o shape shape.cpp && ./shape
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

using Numbers = std::vector<uint32_t>;

static unsigned long long count, digest;

static bool seen_less(uint32_t one, uint32_t other) {
    count += 1;
    for (uint32_t number : {one, other}) {
        digest = (digest ^ number) * 0x100000001b3;
    }
    return one < other;
}

static void heap_sort(Numbers &numbers) {
    std::make_heap(numbers.begin(), numbers.end(), seen_less);
    std::sort_heap(numbers.begin(), numbers.end(), seen_less);
}

static void quick_sort(Numbers &numbers) {
    std::sort(numbers.begin(), numbers.end(), seen_less);
}

static void show(const char *name, void (*sort)(Numbers &), Numbers numbers) {
    count = 0;
    digest = 0xcbf29ce484222325;
    sort(numbers);
    std::printf("%s: %llu, %#llx\n", name, count, digest);
}

int main() {
    std::mt19937 generator;
    Numbers random(10000), few, killer;
    std::generate(random.begin(), random.end(), generator);
    for (uint32_t number : random) {
        few.push_back(number % 100);
    }
    // Musser's, whose every median of three is one of the smallest.
    for (uint32_t number = 1; number <= 1000; number++) {
        killer.push_back(number % 2 == 1 ? number : 999 + number);
    }
    for (uint32_t number = 1; number <= 1000; number++) {
        killer.push_back(2 * number);
    }
    show("heap sort, random", heap_sort, random);
    show("heap sort, few different", heap_sort, few);
    show("quick sort, random", quick_sort, random);
    show("quick sort, few different", quick_sort, few);
    show("quick sort, killer", quick_sort, killer);
}
