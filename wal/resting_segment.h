// SPDX-License-Identifier: Apache-2.0
//
// Checks a segment that rests. It has left the log, so no next segment says where it ends; the list
// that names it does.
#pragma once

#include <functional>
#include <string>

#include "base/io/world.h"
#include "wal/log.h"
#include "wal/record.h"

namespace cairn::wal {

// Walks its groups, reads every byte if `payload`, and hands out the headers of its records in
// order. An error of `on_record` ends the walk and is returned.
// kCorruption, naming file and offset: the file is missing or short, its header is damaged or says
// another number, a group is not whole, or it ends elsewhere. A damaged payload is reported when
// the rest was walked. kUnsupportedFormat; kInvalidArgument: the file of another store.
Status CheckRestingSegment(io::World& world, const std::string& directory, const StoreId& store,
                           const RestingSegment& segment, bool payload,
                           const std::function<Status(const RecordView&)>& on_record);

}  // namespace cairn::wal
