// SPDX-License-Identifier: Apache-2.0
//
// The bug: the last page of an object that does not fill it lies beside the caller's memory, a
// whole number of rows away. The distance was counted round the end of all addresses where the
// caller's memory is the lower of the two, which is right for pages of a power of two bytes alone:
// of others, other bytes were stored, and a get wrote to where no memory of it was.
#include <sys/mman.h>

#include "engine/objects/object_rows.h"
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

constexpr uint32_t kPages[] = {64, 65, 96, 1000, 4096, 18432};
constexpr size_t kBytesMax = 4 * 18432;

alignas(64) std::byte below[kBytesMax];  // The heap is above what a program has of its own...

// ...and below what is mapped.
std::span<std::byte> Above() {
  static void* const mapped =
      mmap(nullptr, kBytesMax, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return {static_cast<std::byte*>(mapped), kBytesMax};
}

TEST(AnObjectOfOddPages, HasItsLastRowAWholeNumberOfRowsAway) {
  bool is_below = false, is_above = false;
  for (const uint32_t page : kPages) {
    for (const std::span<std::byte> memory : {std::span<std::byte>(below), Above()}) {
      for (const size_t offset : {0, 1, 31}) {
        SCOPED_TRACE(std::to_string(page) + " at " + std::to_string(offset));
        const std::span<std::byte> value = memory.subspan(offset, 3 * page + page / 2);
        const std::vector<std::byte> content = Content(page, value.size());
        std::copy(content.begin(), content.end(), value.begin());
        engine::ObjectRows rows(value, page);
        rows.TakeBytes();
        const GroupView& group = rows.view()->groups[0];
        const std::byte* const base = group.planes[0].layer_bases[0];
        (base == value.data() ? is_above : is_below) = true;
        const auto* const slots = static_cast<const int64_t*>(group.table.entries);
        ASSERT_EQ(4u, group.table.count);
        for (size_t row = 0; row < 3; ++row) {
          ASSERT_EQ(value.data() + row * page, base + slots[row] * int64_t{page}) << row;
        }
        const std::byte* const last = base + slots[3] * int64_t{page};
        EXPECT_TRUE(std::equal(value.begin() + 3 * page, value.end(), last));
        EXPECT_EQ(std::byte{0}, last[page - 1]);
      }
    }
  }
  EXPECT_TRUE(is_below && is_above) << "the one order alone was tried";
}

class AnObjectOfOddPagesTest : public ObjectsTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, AnObjectOfOddPagesTest, ::testing::Values("memory", "simulated"),
                         NameOf);

TEST_P(AnObjectOfOddPagesTest, ComesBackAsItWasGiven) {
  for (const uint32_t page : kPages) {
    SCOPED_TRACE(page);
    const std::string name = std::to_string(page);
    ASSERT_OK_ASSIGN(const ObjectClassId id,
                     Space().RegisterClass({.name = name, .page_bytes = page}));
    const std::vector<std::byte> content = Content(page, 3 * page + page / 2);
    for (const std::span<std::byte> memory : {std::span<std::byte>(below), Above()}) {
      const std::span<std::byte> value = memory.first(content.size());
      std::copy(content.begin(), content.end(), value.begin());
      ASSERT_OK(Put(name, value, {.object_class = id, .if_present = IfPresent::kReplace}).status);
      EXPECT_EQ(content, Get(name));
      std::fill(memory.begin(), memory.end(), std::byte{0xEE});
      const ObjectGet get{.key = name, .into = value};
      ASSERT_OK_ASSIGN(const std::vector<GetResult> got, Space().GetBatch({&get, 1}));
      ASSERT_OK(got[0].status);
      EXPECT_TRUE(std::equal(content.begin(), content.end(), value.begin()));
      EXPECT_EQ(std::byte{0xEE}, memory[value.size()]) << "written behind its room";
    }
  }
}

}  // namespace
}  // namespace cairn::testing
