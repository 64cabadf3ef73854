"""The programs in which agents run (hosts): where each keeps skills and servers, and how its files are edited."""
