// A program that moves its hot objects together: of 100,000 records every hundredth is used, so that no huge page pays where they are.
//
//   c++ compact.cpp -lhps -o compact && ./compact [SOCKET]
//
// It uses them until all hot records were moved into a hot arena, at most for a minute, checks that nothing was lost, and prints where
// they lie. Without a daemon it watches its own writes.
#include <hps.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <new>
#include <vector>

namespace {

constexpr std::size_t RECORDS = 100000, HOT = 100, SIZE = 512;

struct Record {
    std::uint64_t number, uses;
    unsigned char rest[SIZE - 16];
};

// Records are found by their number, and only their owner knows that one has moved.
class Table {
public:
    explicit Table(struct hps_arena *arena) : arena(arena), records(RECORDS)
    {
        memory = static_cast<unsigned char *>(aligned_alloc(2 << 20, bytes()));
        for (std::size_t number = 0; number < RECORDS; number++)
            records[number] = new (memory + number * SIZE) Record{number, 0, {}};
    }
    ~Table() { std::free(memory); }
    Table(const Table &) = delete;
    Table &operator=(const Table &) = delete;

    hps_range range() const
    {
        auto start = reinterpret_cast<std::uintptr_t>(memory);
        return {start, start + bytes()};
    }

    void use(std::size_t number)
    {
        std::lock_guard<std::mutex> guard(lock);
        records[number]->uses++;
    }

    // Called by libhps with the active pages of a region.
    std::int64_t compact(const hps_region &region)
    {
        std::int64_t moved = 0;
        auto start = reinterpret_cast<std::uintptr_t>(memory);
        for (std::uint64_t page = 0; page < region.pages_count; page++) {
            auto first = (region.pages[page].address - start) / SIZE;
            for (auto number = first; number < first + 4096 / SIZE && number < RECORDS; number++) {
                std::lock_guard<std::mutex> guard(lock);
                if (!is_hot(number) || !lies_at_home(number))
                    continue;
                auto *place = hps_arena_alloc(arena, sizeof(Record));
                if (!place)
                    return -ENOMEM;
                records[number] = new (place) Record(*records[number]);
                moved += sizeof(Record);
                compacted++;
            }
        }
        return moved;
    }

    bool is_whole(std::uint64_t uses)
    {
        for (std::size_t number = 0; number < RECORDS; number++)
            if (records[number]->number != number || records[number]->uses != (number % HOT ? 0 : uses))
                return false;
        return true;
    }

    std::atomic<std::size_t> compacted{0};

private:
    static constexpr std::size_t bytes() { return (RECORDS * SIZE + (2 << 20) - 1) >> 21 << 21; }
    bool is_hot(std::size_t number) const { return records[number]->uses > 0; }
    bool lies_at_home(std::size_t number) const { return reinterpret_cast<unsigned char *>(records[number]) == memory + number * SIZE; }

    struct hps_arena *arena;
    unsigned char *memory;
    std::vector<Record *> records;
    std::mutex lock;
};

} // namespace

int main(int argc, char **argv)
{
    struct hps_arena *arena = nullptr;
    if (hps_arena_create(4 << 20, 0, &arena)) {
        std::fprintf(stderr, "compact: %s\n", hps_error());
        return 1;
    }
    bool whole = false;
    {
        Table table(arena);
        hps_functions functions{};
        functions.size = sizeof functions;
        functions.context = &table;
        functions.compact = [](void *context, const hps_region *region) {
            return static_cast<Table *>(context)->compact(*region);
        };
        hps_set_functions(&functions);
        auto range = table.range();
        hps_options options{};
        options.size = sizeof options;
        options.interval_ms = 200;
        options.flags = HPS_OWN_WRITES;
        options.ranges = &range;
        options.ranges_count = 1;
        options.socket = argc > 1 ? argv[1] : nullptr;
        if (hps_enable_track(&options)) {
            std::fprintf(stderr, "compact: %s\n", hps_error());
            return 2;
        }
        std::uint64_t uses = 0;
        for (auto end = std::time(nullptr) + 60; table.compacted < RECORDS / HOT && std::time(nullptr) < end; uses++)
            for (std::size_t number = 0; number < RECORDS; number += HOT)
                table.use(number);
        hps_disable_track();
        hps_set_functions(nullptr);
        whole = table.compacted == RECORDS / HOT && table.is_whole(uses);
        hps_arena_info info{};
        hps_arena_get_info(arena, &info);
        const char *kinds[] = {"", "reserved huge pages", "huge pages", "ordinary pages"};
        std::printf("%zu of %zu hot records moved together, onto %s (%lu KiB)\n", table.compacted.load(), RECORDS / HOT,
                    kinds[info.backing], static_cast<unsigned long>(info.backed_bytes >> 10));
    }
    hps_arena_destroy(arena);
    return whole ? 0 : 3;
}
