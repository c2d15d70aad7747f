// SPDX-License-Identifier: Apache-2.0
//
// Property: damage is named, never served. A damaged file that opening needs refuses the store by
// file and offset; a damaged payload costs exactly the positions it holds.
// Method: on the simulated disk, bits of files of every kind are flipped and files cut short, at
// places found by reading the formats.
#include <cstring>

#include "base/codec/fields.h"
#include "base/io/file_util.h"
#include "engine/tree/memory/op.h"
#include "tests/engine/engine_test.h"
#include "tests/support/append_to_log.h"
#include "wal/format.h"
#include "wal/log.h"

namespace cairn::testing {
namespace {

class DamageTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kEach = 4;  // Positions a record.
  static constexpr uint64_t kRecords = 20;

  void SetUp() override {
    sim_ = std::make_unique<io::SimWorld>(io::MakeSimWorld(1));
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_->world());
    Store store = Open();
    auto id = store.RegisterModel(model_);
    ASSERT_OK(id);
    auto chat = store.CreateBranch(*id, {.name = "chat"});
    ASSERT_OK(chat);
    for (uint64_t i = 0; i < kRecords; ++i) {
      ASSERT_OK(AppendSome(*chat, model_, i * kEach, kEach, kSeed, Durability::kPower));
    }
    ASSERT_OK(store.Close());
    for (const std::string& path : sim_->disk->Files()) {
      auto bytes = sim_->disk->ReadRaw(path);
      ASSERT_OK(bytes);
      original_[path] = *bytes;
    }
  }

  Store Open() {
    auto store = Store::Open("/store", options_);
    EXPECT_OK(store);
    return store.ok() ? std::move(*store) : Store();
  }
  Result<Store> TryOpen() { return Store::Open("/store", options_); }

  // The newest file whose name begins so.
  std::string PathOf(const std::string& prefix) {
    std::string found;
    for (const auto& [path, bytes] : original_) {
      if (path.find(prefix) != std::string::npos) found = path;
    }
    EXPECT_NE("", found) << prefix;
    return found;
  }

  // The first live segment, and where its records are.
  std::string Segment() {
    for (const auto& [path, bytes] : original_) {
      if (path.find("/log/") == std::string::npos || bytes.size() < 4096) continue;
      if (wal::LoadAs<uint64_t>(bytes.data() + 8) == wal::kSegmentMagic) return path;
    }
    ADD_FAILURE() << "no live segment";
    return "";
  }
  std::vector<uint64_t> Find32(const std::string& path, uint32_t magic, size_t offset_in_struct) {
    const std::vector<std::byte>& bytes = original_[path];
    std::vector<uint64_t> found;
    for (uint64_t at = 0; at + 64 <= bytes.size(); at += 64) {
      if (wal::LoadAs<uint32_t>(bytes.data() + at + offset_in_struct) == magic) found.push_back(at);
    }
    return found;
  }
  std::vector<uint64_t> Records(const std::string& path) {
    return Find32(path, wal::kRecordMagic, offsetof(wal::RecordFrame, magic));
  }

  void Flip(const std::string& path, uint64_t offset, unsigned bit = 3) {
    ASSERT_OK(sim_->disk->FlipBit(path, offset, bit));
  }
  // As it was.
  void Heal(const std::string& path) {
    ASSERT_OK(sim_->disk->TruncateRaw(path, original_[path].size()));
    ASSERT_OK(sim_->disk->WriteRaw(path, 0, original_[path]));
  }
  static std::string BaseOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  std::unique_ptr<io::SimWorld> sim_;
  Options options_;
  const ModelSpec model_ = TinyModel();
  std::map<std::string, std::vector<std::byte>> original_;
};

TEST_F(DamageTest, TheManifestBitForBitAndCutAnywhere) {
  const std::string path = PathOf("MANIFEST-");
  const size_t bytes = original_[path].size();
  for (size_t offset = 0; offset < bytes; ++offset) {
    Flip(path, offset, static_cast<unsigned>(offset % 8));
    const auto opened = TryOpen();
    // A version that looks newer is reported as such, with the remark that the checksum fails.
    EXPECT_TRUE(Fails(opened.status(), StatusCode::kCorruption, BaseOf(path)) ||
                Fails(opened.status(), StatusCode::kUnsupportedFormat, "checksum fails"))
        << offset << ": " << opened.status().ToString();
    Heal(path);
  }
  for (size_t cut = 0; cut < bytes; cut += 7) {
    ASSERT_OK(sim_->disk->TruncateRaw(path, cut));
    EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, BaseOf(path));
    Heal(path);
  }
  EXPECT_OK(TryOpen());
}

TEST_F(DamageTest, OptionsThatCannotBeReadAreNamedByTheLine) {
  const std::string path = PathOf("OPTIONS");
  const std::string text = "# words\nsync_method=prayer\n";
  ASSERT_OK(sim_->disk->TruncateRaw(path, text.size()));
  ASSERT_OK(sim_->disk->WriteRaw(path, 0, std::as_bytes(std::span(text))));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "OPTIONS: line 2");
  const std::string no_equals = "sync_method\n";
  ASSERT_OK(sim_->disk->TruncateRaw(path, no_equals.size()));
  ASSERT_OK(sim_->disk->WriteRaw(path, 0, std::as_bytes(std::span(no_equals))));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "OPTIONS: line 1");
  const std::string other = "kernel=\nsomething_new=1\n";
  ASSERT_OK(sim_->disk->TruncateRaw(path, other.size()));
  ASSERT_OK(sim_->disk->WriteRaw(path, 0, std::as_bytes(std::span(other))));
  EXPECT_OK(TryOpen()) << "keys of other versions are for people";
}

TEST_F(DamageTest, SegmentGroupAndRecordHeadersRefuseTheStore) {
  const std::string path = Segment();
  struct Place {
    const char* what;
    uint64_t offset;
  };
  const std::vector<uint64_t> groups =
      Find32(path, wal::kGroupMagic, offsetof(wal::GroupHeader, magic));
  const std::vector<uint64_t> records = Records(path);
  ASSERT_GT(groups.size(), 5u);
  ASSERT_GT(records.size(), 10u);
  for (const Place& place : {Place{"segment header", 50}, Place{"first group", groups[0] + 40},
                             Place{"a group", groups[3] + 20}, Place{"a record", records[4] + 33},
                             Place{"fields", records[6] + 70}}) {
    SCOPED_TRACE(place.what);
    Flip(path, place.offset);
    const auto opened = TryOpen();
    EXPECT_FAILS(opened, StatusCode::kCorruption, BaseOf(path));
    EXPECT_NE(std::string_view::npos, opened.status().message().find("offset"))
        << opened.status().ToString();
    Heal(path);
    EXPECT_OK(TryOpen());
  }
}

TEST_F(DamageTest, ANewerSegmentIsUnsupported) {
  const std::string path = Segment();
  std::vector<std::byte> block(original_[path].begin(), original_[path].begin() + 4096);
  auto header = wal::LoadAs<wal::SegmentHeader>(block.data());
  header.format_version = wal::kFormatVersion + 1;
  std::memcpy(block.data(), &header, sizeof header);
  ASSERT_OK(sim_->disk->WriteRaw(path, 0, block));
  const auto opened = TryOpen();
  // With a checksum of the old content the version cannot be believed, but it is looked at first.
  EXPECT_TRUE(Fails(opened.status(), StatusCode::kUnsupportedFormat, BaseOf(path)) ||
              Fails(opened.status(), StatusCode::kCorruption, BaseOf(path)))
      << opened.status().ToString();
}

TEST_F(DamageTest, ASegmentThatIsMissingOrCutShort) {
  const std::string path = Segment();
  const uint64_t first = Records(path)[3] / 4096 * 4096;
  ASSERT_OK(sim_->disk->TruncateRaw(path, first));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, BaseOf(path));
  Heal(path);
  ASSERT_OK(sim_->disk->TruncateRaw(path, 100));
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, BaseOf(path));
  Heal(path);
  EXPECT_OK(TryOpen());
  ASSERT_OK(sim_->disk->Remove("/" + path));
  EXPECT_FALSE(TryOpen().ok());
}

// Every record in turn: the store opens, what lies before the damage restores, what lies behind is
// named, other branches and ranges are as they were.
TEST_F(DamageTest, APayloadCostsItsPositionsAndNoMore) {
  const std::string path = Segment();
  const std::vector<uint64_t> records = Records(path);
  uint64_t record_index = 0;
  for (const uint64_t at : records) {
    const auto frame = wal::LoadAs<wal::RecordFrame>(original_[path].data() + at);
    if (frame.strip_count != 2) continue;  // Tokens and KV.
    const uint64_t begin = kEach * record_index++;
    SCOPED_TRACE("positions from " + std::to_string(begin));
    const uint64_t kv_at = at + frame.payload_offset + 64;
    Flip(path, kv_at + begin % 50);
    {
      Store store = Open();
      ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
      EXPECT_TRUE(HasKv(chat, model_, 0, begin));
      EXPECT_TRUE(HasKv(chat, model_, begin + kEach, kRecords * kEach));
      KvSet room(model_, Layout::kContiguous, 0, kRecords * kEach);
      RestoreRequest request;
      request.into = room.View(0, kRecords * kEach);
      const auto restored = chat.Restore(request);
      EXPECT_FAILS(restored, StatusCode::kCorruption,
                   "restorable up to position " + std::to_string(begin));
      EXPECT_NE(std::string_view::npos, restored.status().message().find("offset"));
      EXPECT_EQ(kRecords * kEach, chat.ReadTokens(0, kRecords * kEach)->size())
          << "the tokens are a strip of their own";
      ASSERT_OK_ASSIGN(const VerifyReport headers, store.Verify(VerifyLevel::kHeaders));
      EXPECT_TRUE(headers.damages.empty());
      ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
      ASSERT_EQ(1u, report.damages.size());
      EXPECT_EQ(frame.sequence, report.damages[0].sequence);
    }
    // Closing wrote a manifest; the damaged segment itself is untouched.
    for (const auto& [file, bytes] : original_) {
      if (file.find("/log/") != std::string::npos && sim_->disk->ReadRaw(file).ok()) Heal(file);
    }
    Store healed = Open();
    ASSERT_OK_ASSIGN(Branch chat, healed.FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, model_, 0, kRecords * kEach));
  }
  EXPECT_EQ(kRecords, record_index);
}

TEST_F(DamageTest, DamagedTokensAndStates) {
  const std::string path = Segment();
  for (const uint64_t at : Records(path)) {
    const auto frame = wal::LoadAs<wal::RecordFrame>(original_[path].data() + at);
    if (frame.strip_count != 2) continue;
    Flip(path, at + frame.payload_offset + 1);
    break;
  }
  Store store = Open();
  ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
  EXPECT_FAILS(chat.ReadTokens(0, 8), StatusCode::kCorruption, "restorable up to position 0");
  EXPECT_OK(chat.ReadTokens(kEach, 8));
  EXPECT_TRUE(HasKv(chat, model_, 0, 8)) << "the KV is not touched by it";
  ASSERT_OK(AppendSome(chat, model_, kRecords * kEach, 3)) << "the store goes on";
}

// The log of a store that was made from it, say, and went its own way.
TEST_F(DamageTest, TheLogOfAnotherStoreIsNotReplayed) {
  std::map<std::string, std::vector<std::byte>> log;
  for (const auto& [path, bytes] : original_) {
    if (path.find("/log/") != std::string::npos) log[path] = bytes;
    ASSERT_OK(sim_->disk->Remove("/" + path));
  }
  ASSERT_OK(Open().Close());  // Another one.
  for (const auto& [path, bytes] : log) {
    ASSERT_OK(io::WriteFileDurably(*sim_->disk, "/" + path, bytes));
  }
  EXPECT_FAILS(TryOpen(), StatusCode::kCorruption, "a segment of another store");
}

// Records that have their checksums, and that no version of the library writes.
TEST_F(DamageTest, ARecordThatCannotBeIsNamedByItsPlace) {
  const auto append = [&](const wal::RecordSpec& spec) {
    ASSERT_OK(AppendToLog(sim_->world(), "/store", options_, spec));
  };
  const auto start_again = [&] {
    for (const std::string& path : sim_->disk->Files()) {
      if (original_.contains(path)) continue;
      ASSERT_OK(sim_->disk->Remove("/" + path));
    }
    for (const auto& [path, bytes] : original_) {
      ASSERT_OK(io::WriteFileDurably(*sim_->disk, "/" + path, bytes));
    }
  };
  append({.kind = 999, .more = false, .unit = 0, .fields = {}, .strips = {}});
  const auto unknown = TryOpen();
  EXPECT_FALSE(unknown.ok());
  EXPECT_TRUE(unknown.status().message().starts_with("log/0000000000000002.log: offset "))
      << unknown.status().ToString();

  start_again();
  engine::Op op;
  op.kind = engine::OpKind::kPart;
  op.lanes = {{.lane = engine::kTokenLane, .strip = 5, .begin = 0, .count = 1}};
  FieldWriter fields;
  engine::EncodeOp(op, &fields);
  append({.kind = static_cast<uint16_t>(op.kind),
          .more = true,
          .unit = 0,
          .fields = fields.bytes(),
          .strips = {}});
  const auto no_strip = TryOpen();
  EXPECT_FAILS(no_strip, StatusCode::kCorruption, "strip 5 does not exist");
  EXPECT_TRUE(no_strip.status().message().starts_with("log/0000000000000002.log: offset "))
      << no_strip.status().ToString();
}

// Reads complete out of order, so the damage that is met first need not be the first one.
TEST_F(DamageTest, OfSeveralDamagesTheFirstPositionIsNamed) {
  constexpr uint64_t kSpread = 6;
  uint64_t last_sequence = 0;
  for (const uint64_t at : Records(Segment())) {
    const auto frame = wal::LoadAs<wal::RecordFrame>(original_[Segment()].data() + at);
    last_sequence = std::max(last_sequence, frame.sequence);
  }
  {
    Store store = Open();
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    ASSERT_OK_ASSIGN(Branch spread, store.CreateBranch(chat.Info()->model, {.name = "spread"}));
    ASSERT_OK_ASSIGN(Branch filler, store.CreateBranch(chat.Info()->model));
    for (uint64_t i = 0; i < kSpread; ++i) {
      ASSERT_OK(AppendSome(spread, model_, i * kEach, kEach));
      const std::vector<TokenId> tokens = Tokens(30'000);  // No window holds two of the spread.
      ASSERT_OK(filler.AppendSync(MakeDelta(tokens)));
    }
    ASSERT_OK(store.Close());
  }
  uint64_t index = 0;
  for (const std::string& path : sim_->disk->Files()) {
    if (path.find("/log/") == std::string::npos) continue;
    original_[path] = *sim_->disk->ReadRaw(path);
    for (const uint64_t at : Records(path)) {
      const auto frame = wal::LoadAs<wal::RecordFrame>(original_[path].data() + at);
      if (frame.strip_count != 2 || frame.sequence <= last_sequence) continue;
      if (index == 2 || index == 4 || index == 5) Flip(path, at + frame.payload_offset + 70);
      ++index;
    }
  }
  ASSERT_EQ(kSpread, index);
  Store store = Open();
  ASSERT_OK_ASSIGN(Branch spread, store.FindBranch("spread"));
  for (int i = 0; i < 50; ++i) {
    KvSet room(model_, Layout::kContiguous, 0, kSpread * kEach);
    RestoreRequest request;
    request.into = room.View(0, kSpread * kEach);
    ASSERT_TRUE(Fails(spread.Restore(request).status(), StatusCode::kCorruption,
                      "restorable up to position 8"));
  }
  EXPECT_TRUE(HasKv(spread, model_, 0, 2 * kEach));
}

}  // namespace
}  // namespace cairn::testing
