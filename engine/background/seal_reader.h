// SPDX-License-Identifier: Apache-2.0
//
// Reads the positions of a source from the places in its extents. These files stay: only the space
// thread, which is sealing, recycles log segments and deletes tables.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/background/seal_table.h"
#include "engine/restore/plan/read_ahead_buffer.h"
#include "engine/restore/reader.h"
#include "engine/tree/memory/seal_source.h"

namespace cairn {

class StoreSealReader final : public engine::SealReader {
 public:
  // `take`: as Take.
  StoreSealReader(engine::Reader* reader, std::function<Status(uint64_t written_bytes)> take)
      : reader_(reader), take_(std::move(take)) {}

  // Announces the sources that are read next, in this order, so that small records are read
  // together.
  void Expect(std::span<const engine::SealSource> sources) {
    expected_ = sources;
    looked_ahead_ = 0;
  }

  Status ReadTokens(const engine::SealSource& source, std::span<TokenId> into) override;
  Status ReadKv(const engine::SealSource& source, const GroupView& into) override;
  Result<std::vector<std::byte>> ReadState(const engine::SealSource& source) override;
  Status Take(uint64_t written_bytes) override { return take_(written_bytes); }
  bool Quiet() const override { return reader_->IsQuiet(); }

 private:
  Status Read(const engine::SealSource& source, uint64_t begin, uint64_t end,
              const RestoreRequest& request);
  Status LookAhead(const engine::SealSource& source);

  engine::Reader* const reader_;
  const std::function<Status(uint64_t)> take_;
  std::span<const engine::SealSource> expected_;
  size_t looked_ahead_ = 0;  // Records of the sources before it are in the buffer.
  engine::ReadAheadBuffer read_ahead_;
};

}  // namespace cairn
