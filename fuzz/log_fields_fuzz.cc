// SPDX-License-Identifier: Apache-2.0
//
// The content of log records besides payload: ops, models, states. Any bytes are read or refused;
// values that were read and are written again are the same.
#include <utility>
#include <vector>

#include "base/codec/fields.h"
#include "base/core/check.h"
#include "engine/tree/memory/op.h"
#include "fuzz/input.h"

using namespace cairn;

namespace {

template <typename Decode, typename Encode>
void RoundTrip(std::span<const std::byte> bytes, const Decode& decode, const Encode& encode) {
  const auto first = decode(bytes);
  if (!first.ok()) return;
  const std::vector<std::byte> written = encode(*first);
  const auto second = decode(std::span<const std::byte>(written));
  CAIRN_CHECK(second.ok());
  CAIRN_CHECK(encode(*second) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::Input input(data, bytes);
  const uint8_t kind = input.Take<uint8_t>();
  const std::vector<std::byte> rest(input.rest().begin(), input.rest().end());
  switch (kind % 6) {
    case 0: {
      const auto encode = [](const engine::Op& op) {
        FieldWriter writer;
        engine::EncodeOp(op, &writer);
        return std::move(writer).Take();
      };
      RoundTrip(rest, engine::DecodeOp, encode);
      break;
    }
    case 1: {
      const auto model = engine::DecodeModel(rest);
      if (model.ok()) static_cast<void>(model->Validate());
      RoundTrip(rest, engine::DecodeModel, engine::EncodeModel);
      break;
    }
    case 2: RoundTrip(rest, engine::DecodeSampler, engine::EncodeSampler); break;
    case 3: RoundTrip(rest, engine::DecodeMetadata, engine::EncodeMetadata); break;
    case 4: {  // A record as it comes from the log, a batch too.
      wal::RecordView record;
      record.kind = kind / 6;
      record.fields = rest;
      static_cast<void>(engine::DecodeRecord(record));
      break;
    }
    default: {
      const auto fields = FieldReader::Parse(rest);
      if (!fields.ok()) break;
      for (const Field& field : fields->fields()) {
        static_cast<void>(field.u64());
        static_cast<void>(field.f64());
        static_cast<void>(field.text());
      }
      break;
    }
  }
  return 0;
}
