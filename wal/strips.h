// SPDX-License-Identifier: Apache-2.0
//
// The strips of a record apart from its header, for readers that know where a strip lies and read
// nothing else of the record.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/codec/hash.h"
#include "cairn/status.h"
#include "wal/record.h"

namespace cairn::wal {

// Where a strip lies in its record, from the frame on, and its sealed hash.
struct StripPlace {
  uint32_t offset = 0;
  uint32_t bytes = 0;
  uint64_t hash = 0;
};

// Where all strips of a record lie.
std::vector<StripPlace> PlacesOfStrips(const RecordView& record);

// For messages: which strip of which record.
struct StripName {
  const Location& location;
  uint64_t sequence = 0;
  size_t index = 0;
};

// `bytes` are those of the strip. kCorruption names segment and offset.
Status VerifyStrip(const StripName& name, const StripPlace& strip, std::span<const std::byte> bytes,
                   const StoreId& store);

}  // namespace cairn::wal
