// SPDX-License-Identifier: Apache-2.0
//
// Records of the log that are only read to be checked.
#include "base/core/out_of_memory.h"
#include "engine/restore/plan/page_tier.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

namespace {

// The sink of a record that is only read to be checked.
class CheckSink final : public RestoreSink {
 public:
  CheckSink(size_t index, const Reader::CheckRecord& check) : index_(index), check_(check) {}
  bool given() const { return given_; }

  Status Record(const RecordJob& /*job*/, const ReadBytes& record, bool /*verify*/) override {
    given_ = true;
    return check_(index_, record.bytes());
  }
  Status Frame(const FrameJob& /*job*/, const ReadBytes& /*stored*/) override {
    return Status::Ok();
  }
  Status Fragment(size_t /*piece*/, const ReadBytes& /*stored*/,
                  uint64_t* /*first_position*/) override {
    return Status::Ok();
  }
  uint64_t Unpacked(const FrameJob& /*job*/, const ReadBytes& /*raw*/) override { return 0; }
  Status WindowDone(size_t /*buffer*/) override { return Status::Ok(); }
  void LayerDone(size_t /*layer*/) override {}
  bool Reclaim(uint64_t /*deadline_ns*/) override { return false; }
  Status Finish() override { return Status::Ok(); }
  Delivered delivered() const override { return {}; }

 private:
  const size_t index_;
  const Reader::CheckRecord& check_;
  bool given_ = false;
};

}  // namespace

std::vector<Status> Reader::CheckRecords(std::span<const wal::Location> records,
                                         const CheckRecord& check) {
  // The bytes that fit into the buffers, so that the memory for each record stays small.
  constexpr uint64_t kBytesAtOnce = kReadWindows * kReadWindowBytes;
  constexpr size_t kRecordsAtOnce = 1024;
  std::vector<Status> found(records.size());
  for (size_t first = 0; first < records.size();) {
    uint64_t bytes = 0;
    size_t end = first;
    for (; end < records.size() && end - first < kRecordsAtOnce && bytes < kBytesAtOnce; ++end) {
      bytes += records[end].bytes;
    }
    CheckSome(records.subspan(first, end - first), first, check, found);
    first = end;
  }
  return found;
}

// Each is an item of its own, so that damage of one does not affect the others.
void Reader::CheckSome(std::span<const wal::Location> records, size_t first,
                       const CheckRecord& check, std::span<Status> found) {
  std::vector<ItemRun> runs(records.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].plan.jobs.push_back({records[i], records[i].bytes, {}});
    runs[i].outcome.has_positions = false;
    runs[i].outcome.Expect(1);
    runs[i].sink = std::make_unique<CheckSink>(first + i, check);
  }
  const ReadDeps deps = DepsFor(ReadFor::kCaller, io::kNoDeadline);
  const Status served = CatchBadAlloc([&] { FileTier(deps).Serve(runs); });
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!served.ok()) runs[i].outcome.Stop(served);
    found[first + i] = runs[i].outcome.status();
    const bool given = static_cast<const CheckSink*>(runs[i].sink.get())->given();
    if (!given && runs.size() > 1) CheckSome(records.subspan(i, 1), first + i, check, found);
  }
}

}  // namespace cairn::engine
