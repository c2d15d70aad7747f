// SPDX-License-Identifier: Apache-2.0
//
// The bug: the keys of a batch are looked up together, so one whose record in the index was damaged
// failed the others with it: none of them could be read, put or deleted in one call.
// Method: a bit of what the index has of one object is flipped on a simulated disk.
#include "tests/engine/objects_test.h"

namespace cairn::testing {
namespace {

TEST(OneBadObject, FailsAlone) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.listener = std::make_shared<EventListener>();
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ObjectClassId id,
                   Objects(store).RegisterClass({.name = "pages", .page_bytes = 512}));
  // Damaged first, and the others so far behind that their records lie in other blocks.
  std::vector<std::string> keys = {"damaged"};
  for (int i = 100; i < 500; ++i) keys.push_back("m " + std::string(30, '.') + std::to_string(i));
  keys.push_back("other");
  const std::vector<std::byte> value = Content(1, 700);
  std::vector<ObjectPut> puts;
  for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
  ASSERT_OK(Objects(store).PutBatch(puts, {.object_class = id}));
  ASSERT_OK(store.Compact());
  ASSERT_OK(store.Close());
  for (const std::string& file : machine.disk->Files()) {
    if (!file.ends_with(".index")) continue;
    ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, machine.disk->ReadRaw("/" + file));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const size_t at = text.find("damaged"); at != std::string_view::npos) {
      ASSERT_OK(machine.disk->FlipBit("/" + file, at, 3));
    }
  }
  store = Store();
  ASSERT_OK_ASSIGN(store, Store::Open("/store", options));
  Objects space(store);
  std::vector<std::byte> first(700), second(700);
  const ObjectGet gets[] = {{.key = "damaged", .into = first},
                            {.key = "other", .into = second},
                            {.key = "there is none", .into = first}};
  ASSERT_OK_ASSIGN(const std::vector<GetResult> got, space.GetBatch(gets));
  EXPECT_FAILS(got[0].status, StatusCode::kCorruption);
  EXPECT_OK(got[1].status);
  EXPECT_EQ(value, second);
  EXPECT_FAILS(got[2].status, StatusCode::kNotFound);
  const ObjectPut again[] = {{.key = "damaged", .value = value},
                             {.key = "other", .value = value},
                             {.key = "third", .value = value}};
  ASSERT_OK_ASSIGN(const std::vector<PutResult> put, space.PutBatch(again, {.object_class = id}));
  EXPECT_FAILS(put[0].status, StatusCode::kCorruption);
  EXPECT_OK(put[1].status);
  EXPECT_FALSE(put[1].stored);
  EXPECT_OK(put[2].status);
  EXPECT_TRUE(put[2].stored);
  const std::string_view gone[] = {"other", "damaged", "third", "there is none"};
  ASSERT_OK_ASSIGN(const std::vector<Status> deleted, space.Delete(gone));
  EXPECT_OK(deleted[0]);
  EXPECT_FAILS(deleted[1], StatusCode::kCorruption);
  EXPECT_OK(deleted[2]);
  EXPECT_FAILS(deleted[3], StatusCode::kNotFound);
  ASSERT_OK_ASSIGN(const ObjectsFound found, space.Exists({&gone[2], 1}));
  EXPECT_EQ(0u, found.count);
}

}  // namespace
}  // namespace cairn::testing
